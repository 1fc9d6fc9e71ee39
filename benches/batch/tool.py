"""What benches/batch/run needs beside callgate: a slow, faulty tool, and the client it is compared with.

  tool.py tool PORT [MS [sound]]   the tool: works MS (50) ms, 5 % each of three faults unless sound
  tool.py naive PORT FILE          20 workers; a new try 5 s after each failure, given up after 300 ms
  tool.py rows N                   rows to push
  tool.py table FILE               a table of what benches/batch/run wrote down

The faults are drawn by (item, arrival): an answer 0.6 s late after the work; 500 after the work; the
connection cut before it. GET /receipts/ID tells the truth; GET /books counts what really happened.
"""
import asyncio, hashlib, json, sys, time

def draw(item, n):
    h = hashlib.blake2b(f"{item}/{n}".encode(), digest_size=4).digest()
    return int.from_bytes(h, "big") % 10_000

class Tool:
    def __init__(self, ms, faults):
        self.work, self.faults = ms / 1000, faults
        self.arrivals, self.effects, self.state, self.asked = {}, {}, {}, 0
        self.late, self.broken, self.cut = 0, 0, 0

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                line, *fields = head.decode("latin-1").split("\r\n")
                method, path, _ = line.split(" ", 2)
                fields = dict(f.split(": ", 1) for f in (x for x in fields if x))
                fields = {k.lower(): v for k, v in fields.items()}
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                if method == "POST":
                    status, text = await self.track(fields.get("x-call-id", ""), json.loads(body))
                elif path == "/books":
                    twice = sum(n > 1 for n in self.effects.values())
                    text = json.dumps({"arrivals": sum(self.arrivals.values()), "items": len(self.arrivals),
                        "effects": sum(self.effects.values()), "done": len(self.effects), "twice": twice,
                        "asked": self.asked, "late": self.late, "broken": self.broken,
                        "cut": self.cut})
                    status = 200
                else:
                    self.asked += 1
                    call = path.rsplit("/", 1)[1]
                    known = self.state.get(call)
                    status = 200 if known else 404
                    text = json.dumps({"callId": call, "state": known} if known else {})
                if status == 0:
                    writer.transport.abort()
                    return
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
                             f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def track(self, call, row):
        item = row["trackingNo"]
        n = self.arrivals[item] = self.arrivals.get(item, 0) + 1
        u = draw(item, n) if self.faults else 10_000
        if 1_000 <= u < 1_500:
            self.cut += 1
            return 0, ""
        self.state[call] = "PROCESSING"
        # What is begun is done, whether its caller stays or not.
        return await asyncio.shield(asyncio.ensure_future(self.does(call, item, u)))

    async def does(self, call, item, u):
        if self.work:
            await asyncio.sleep(self.work)
        self.effects[item] = self.effects.get(item, 0) + 1
        self.state[call] = "SUCCESS"
        if u < 500:
            self.late += 1
            await asyncio.sleep(0.6)
        self.broken += 500 <= u < 1_000
        return (500, '{"error":"broken"}') if 500 <= u < 1_000 else (200, '{"ok":true}')

async def ask(port, item):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        body = json.dumps({"trackingNo": item, "date": "2026-11-30"})
        writer.write(f"POST /track HTTP/1.1\r\nHost: x\r\nX-Call-Id: {time.monotonic_ns()}\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        return int((await reader.readuntil(b"\r\n")).split()[1])
    finally:
        writer.close()

async def naive(port, path):
    items = iter([line.split(",")[0] for line in open(path)][1:])
    began = time.monotonic()
    async def worker():
        for item in items:
            while True:
                try:
                    if await asyncio.wait_for(ask(port, item), 0.3) < 300:
                        break
                except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                    pass
                await asyncio.sleep(5)
    await asyncio.gather(*(worker() for _ in range(20)))
    print(f"wall {time.monotonic() - began:.1f} s")

# What nobody can avoid, in seconds: the work; the rest of an attempt that has to time out, for each late
# answer; and for each cut connection the backoff, and `settle` before "never heard of it" is believed.
WORK, LATE, CUT, WORKERS = 0.05, 0.25, 0.15, 20

def least(run, faults):
    return (run["rows"] * WORK + faults["late"] * LATE + faults["cut"] * CUT) / WORKERS

def table(path):
    runs = [json.loads(line) for line in open(path)]
    # The faults of the first run are those of every client that does each row once: they are drawn
    # by (item, arrival).
    ideal = least(runs[0], runs[0]["books"])
    print("| | effects twice | not done | wall | times the least |")
    print("|---|---|---|---|---|")
    print(f"| the least it can take | | | {ideal:.1f} s | |")
    for run in runs:
        b = run["books"]
        lost = run["rows"] - b["done"]
        print(f"| {run['name']} | {b['twice']} | {lost} | {run['wall']:.1f} s | {run['wall'] / ideal:.2f} |")
    b = runs[0]["books"]
    print(f"\nThe least: {runs[0]['rows']} x 50 ms, 250 ms more for each of {b['late']} late answers, 150 ms "
          f"more for each of {b['cut']} cut connections, by {WORKERS} workers.")
    wrong = [run["name"] for run in runs[:2] if run["books"]["twice"] or run["rows"] > run["books"]["done"]]
    if wrong:
        sys.exit(f"twice or not at all: {', '.join(wrong)}")

async def tool(port, ms, faults):
    t = Tool(ms, faults)
    server = await asyncio.start_server(t.serve, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()

what, *rest = sys.argv[1:]
if what == "tool":
    asyncio.run(tool(int(rest[0]), float(rest[1]) if rest[1:] else 50, not rest[2:]))
elif what == "table":
    table(rest[0])
elif what == "naive":
    asyncio.run(naive(int(rest[0]), rest[1]))
else:
    print("trackingNo,date")
    for n in range(int(rest[0])):
        print(f"RX{n:07},2026-11-30")

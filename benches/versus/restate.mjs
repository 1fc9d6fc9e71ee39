// The service behind restate's row: a durable step that does one call to the tool and keeps its
// answer. Prints where it listens. RESTATE_SDK is the SDK's entry, TOOL the tool's URL.

import http from "node:http";
import http2 from "node:http2";

// Node 20 has none, and the SDK needs it.
Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new Promise((yes, no) => { resolve = yes; reject = no; });
  return { promise, resolve, reject };
};

const restate = await import(process.env.RESTATE_SDK);
const tool = new URL(process.env.TOOL);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1024 });

function call(id, body) {
  const headers = {
    "Content-Type": "application/json",
    "Content-Length": body.length,
    "X-Call-Id": id,
  };
  return new Promise((resolve, reject) => {
    const request = http.request(tool, { method: "POST", agent, headers }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => {
        const text = Buffer.concat(parts).toString();
        if (answer.statusCode === 200) resolve(text);
        else reject(new restate.TerminalError(text, { errorCode: answer.statusCode }));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

const service = restate.service({
  name: "tool",
  handlers: {
    call: restate.handlers.handler(
      { accept: "application/json", input: restate.serde.binary, output: restate.serde.binary },
      async (ctx, body) => {
        const id = ctx.request().id;
        return Buffer.from(await ctx.run("call", () => call(id, Buffer.from(body))));
      },
    ),
  },
});

const server = http2.createServer(restate.createEndpointHandler({ services: [service] }));
server.listen(0, "127.0.0.1", () => console.log(`127.0.0.1:${server.address().port}`));
process.on("SIGTERM", () => process.exit(0));

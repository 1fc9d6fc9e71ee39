-- One POST of 512 bytes with the header lines a service client sends; no call id, so that the
-- proxy has to make one. Each call asks for something else, as calls do: the same request again
-- under a new id would be a suspected repeat. `done` prints what `run` reads, as JSON.

wrk.method = "POST"
wrk.body = '{"pad":"' .. string.rep("x", 512 - 10) .. '"}'
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Accept"] = "application/json"
wrk.headers["Accept-Encoding"] = "identity"
wrk.headers["Accept-Language"] = "en"
wrk.headers["User-Agent"] = "versus/1 (load generator)"
wrk.headers["X-Request-Id"] = "0f8fad5b-d9cb-469f-a165-70867728950e"
wrk.headers["X-Tenant"] = "billing"
wrk.headers["X-Region"] = "eu-central"
wrk.headers["Cache-Control"] = "no-store"

local requests, last = {}, 0

function init()
  for n = 1, 4096 do
    local body = string.format('{"n":"%04d","pad":"%s"}', n, string.rep("x", 512 - 21))
    requests[n] = wrk.format(nil, nil, nil, body)
  end
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary, latency)
  io.write(string.format(
    'RESULT {"requests":%d,"micros":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d,' ..
    '"status":%d,"p50":%d,"p99":%d}\n',
    summary.requests, summary.duration, summary.errors.connect, summary.errors.read,
    summary.errors.write, summary.errors.timeout, summary.errors.status,
    latency:percentile(50), latency:percentile(99)))
end

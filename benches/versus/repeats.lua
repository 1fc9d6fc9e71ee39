-- What a caller sends who asks again: a receipt, a repeat of a settled call, a repeat of one that
-- may still run. MODE and IDS come from `repeats`.

local mode, ids = os.getenv("MODE"), tonumber(os.getenv("IDS"))
local body = '{"pad":"' .. string.rep("x", 512 - 10) .. '"}'
local fields = {
  ["Content-Type"] = "application/json",
  ["Accept"] = "application/json",
  ["Accept-Encoding"] = "identity",
  ["Accept-Language"] = "en",
  ["User-Agent"] = "versus/1 (load generator)",
  ["X-Request-Id"] = "0f8fad5b-d9cb-469f-a165-70867728950e",
  ["X-Tenant"] = "billing",
  ["X-Region"] = "eu-central",
  ["Cache-Control"] = "no-store",
}
local n = 0

function request()
  n = n + 1
  if mode == "receipt" then
    return wrk.format("GET", "/_callgate/receipts/settled-" .. n % ids, fields)
  elseif mode == "replay" then
    fields["X-Call-Id"] = "settled-" .. n % ids
  elseif mode == "join" then
    -- As many callers as there are connections repeat each call at once.
    fields["X-Call-Id"] = "join-" .. os.getenv("RUN") .. "-" .. math.floor(n / 64)
  end
  return wrk.format("POST", mode == "plain" and "/plain" or "/tool", fields, body)
end

function done(summary, latency)
  io.write(string.format(
    'RESULT {"requests":%d,"micros":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d,' ..
    '"status":%d,"p50":%d,"p99":%d}\n',
    summary.requests, summary.duration, summary.errors.connect, summary.errors.read,
    summary.errors.write, summary.errors.timeout, summary.errors.status,
    latency:percentile(50), latency:percentile(99)))
end

// Loaded into a Node client that has no option for headers: every request carries the token.
const token = "Bearer " + process.env.NCU_SERVER_TOKEN;
const fetched = globalThis.fetch;
globalThis.fetch = (url, given = {}) => {
  const headers = new Headers(given.headers || {});
  headers.set("authorization", token);
  return fetched(url, { ...given, headers });
};
const http = require("node:http");
const requested = http.request;
http.request = function (...given) {
  const sent = requested.apply(this, given);
  sent.setHeader("authorization", token);
  return sent;
};

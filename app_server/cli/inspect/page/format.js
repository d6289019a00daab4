// Texts and elements: how times, sizes and messages are written.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function shape(tag, attributes = {}, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function clock(ms) {
  const seconds = ms / 1000;
  const minutes = Math.floor(seconds / 60);
  const rest = (seconds - minutes * 60).toFixed(3).padStart(6, "0");
  return minutes >= 60
    ? `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`
    : `${String(minutes).padStart(2, "0")}:${rest}`;
}

export function duration(ms) {
  if (ms < 0.005) return "0 ms";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function bytes(size) {
  if (size < 1000) return `${size} B`;
  if (size < 1e6) return `${(size / 1e3).toFixed(size < 1e4 ? 1 : 0)} kB`;
  return `${(size / 1e6).toFixed(1)} MB`;
}

export const count = (number) => number.toLocaleString("en-US");

export const short = (id) => (id.length > 13 ? `…${id.slice(-8)}` : id);

// What a row says, in one line. Only rows that are looked at are parsed.
export function summary(row) {
  row.summary ??= summarize(row);
  return row.summary;
}

function summarize(row) {
  if (row.form === "text" || row.form === "base64") return row.text.slice(0, 300);
  let value;
  try {
    value = JSON.parse(row.text);
  } catch {
    return row.text.slice(0, 300);
  }
  if (row.form === "event") return happened(value);
  if (value === null || typeof value !== "object") return row.text;
  if ("method" in value) return ofParams(value.params ?? {});
  if (value.error) return value.error.message ?? JSON.stringify(value.error);
  return told(value.result ?? {}, 240);
}

function happened(event) {
  switch (event.event) {
    case "started": return `the server runs as process ${event.process}`;
    case "ended": return event.source === "client" ? "the client closed stdin" : `${event.source} ended`;
    case "exited": return event.status < 0 ? `the server was ended by signal ${-event.status}` : `the server exited with status ${event.status}`;
    case "gap": return `${count(event.frames)} chunks (${bytes(event.bytes)}) were not kept: the page was too slow. The stream was not`;
    default: return event.message ?? JSON.stringify(event);
  }
}

const QUIET = new Set(["threadId", "turnId", "itemId", "conversationId", "sessionId", "id", "type", "startedAtMs", "completedAtMs", "sessionUpdate", "call_id", "thread_id", "turn_id", "item_id"]);

function ofParams(params) {
  const event = params.msg ?? params.update ?? params;
  if (typeof event?.delta === "string") return event.delta;
  if (typeof event?.content?.text === "string") return event.content.text;
  const item = event?.item;
  if (item && typeof item === "object") {
    const inner = item.type ? item : Object.values(item)[0] ?? {};
    return `${item.type ?? Object.keys(item)[0] ?? ""}  ${told(inner, 220)}`;
  }
  return told(event ?? {}, 240);
}

const FIRST = ["text", "message", "command", "title", "status", "willRetry", "decision", "input", "items", "prompt", "name", "cwd"];

function told(value, limit) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).filter((name) => !QUIET.has(name) && value[name] !== null);
  names.sort((a, b) => rank(a) - rank(b));
  let line = "";
  for (const name of names) {
    const text = inline(value[name]);
    line += `${line ? "  " : ""}${name}: ${text.slice(0, 160)}`;
    if (line.length > limit) break;
  }
  return line || "{}";
}

// A value as a few words: texts of a list, the type of an object with what else it has.
function inline(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value.length && value.every((each) => typeof each?.text === "string")) return value.map((each) => each.text).join(" ");
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) return value.join(" ") || "[]";
  if (typeof value?.type === "string") {
    const rest = Object.entries(value).filter(([name, each]) => name !== "type" && each !== null && !(Array.isArray(each) && !each.length));
    return value.type + (rest.length ? ` ${JSON.stringify(Object.fromEntries(rest))}` : "");
  }
  return JSON.stringify(value);
}

const rank = (name) => (FIRST.indexOf(name) + 1 || 99);

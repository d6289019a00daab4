// Puts the page together: sessions, filters, keys, and what is drawn when.

import { about, download, Feed, open, replay, wholeText } from "./feed.js";
import { Figures } from "./figures.js";
import { bytes, count, element, short } from "./format.js";
import { List } from "./list.js";
import { MessagePane } from "./message.js";
import { isFiltering, NO_FILTER, Session, Shown } from "./session.js";
import { Stderr, Waiting } from "./side.js";
import { Timeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const SLOW = 400; // milliseconds between two drawings of what is not the list

const sessions = new Map(); // number → Session
let session;
let feed;
let filter = { ...NO_FILTER };
let shown;
let pinned; // the turn that the timeline keeps to
let stale = false;
let clockStart = performance.now();

const list = new List($("list"), { onSelect: look, onFollow: (on) => ($("follow").hidden = on) });
const message = new MessagePane(
  { title: $("message-title"), facts: $("facts"), json: $("json"), find: $("find"), found: $("found"), copy: $("copy") },
  { onJump: jump, onTurn: keepTurn, whole: (of, n) => wholeText(of.number, n).catch(() => undefined) },
);
const timeline = new Timeline($("view-timeline"), { onJump: jump });
const waiting = new Waiting($("view-waiting"), { onJump: jump });
const figures = new Figures($("view-figures"), { onMethod: (name) => setFilter({ method: name }) });
const stderr = new Stderr($("view-stderr"));

// --- sessions
async function show(number) {
  feed?.close();
  if (!sessions.has(number)) {
    const told = await about(number).catch(() => ({ server: [], began: "", canReplay: false, name: "live" }));
    sessions.set(number, new Session(number, told));
  }
  session = sessions.get(number);
  $("server").textContent = session.title.server.join(" ");
  $("server").title = session.title.began ? `began ${session.title.began}` : "";
  $("replay").disabled = !session.title.canReplay;
  listSessions();
  filter = { ...NO_FILTER, fold: filter.fold };
  pinned = undefined;
  list.selected = -1;
  list.following = true;
  stderr.reset();
  writeFilter();
  message.show(undefined);
  refilter();
  if (session.ended) setState("ended");
  else feed = new Feed(session, { onRows: arrived, onState: setState });
}

function listSessions() {
  $("session").replaceChildren(...[...sessions.values()].map((each) => element("option", { value: each.number, selected: each === session }, each.title.name)));
}

function setState(state) {
  const words = { live: session.title.name === "live" ? "live" : "loading", ended: "ended", lost: "disconnected" };
  $("state").textContent = words[state];
  $("state").className = `state is-${state}`;
  drawSlow();
}

// --- what arrives
function arrived() {
  const last = session.rows[session.rows.length - 1];
  clockStart = performance.now() - (last?.at ?? 0);
  shown.update();
  list.refresh();
  if (!stale) {
    stale = true;
    setTimeout(drawSlow, SLOW);
  }
}

function drawSlow() {
  stale = false;
  if (!session) return;
  writeCounts();
  writeChoices();
  badge("waiting-count", session.waiting.size);
  badge("wrong-count", session.wrong.length);
  badge("stderr-count", session.stderr.length);
  timeline.show(session, pinned ?? session.lastTurn(), Boolean(pinned));
  waiting.draw(session, performance.now() - clockStart);
  figures.draw(session);
  stderr.draw(session);
}

function badge(id, number) {
  $(id).hidden = !number;
  $(id).textContent = count(number);
}

function writeCounts() {
  const all = session.messages.client + session.messages.server;
  const size = bytes(session.sizes.client + session.sizes.server);
  const part = isFiltering(filter) ? `${count(shown.matches)} of ` : "";
  $("counts").textContent = `${part}${count(all)} messages, ${size}${session.lost ? `, ${count(session.lost)} dropped` : ""}`;
}

function choices(select, first, found) {
  const wanted = [["", first], ...found];
  const now = [...select.options].map((each) => each.value);
  if (now.length === wanted.length && now.every((value, at) => value === wanted[at][0])) return;
  const chosen = select.value;
  select.replaceChildren(...wanted.map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
}

function writeChoices() {
  choices($("thread"), "All threads", [...session.threads.keys()].map((id) => [id, `thread ${short(id)}`]));
  const turns = filter.thread ? [...(session.threads.get(filter.thread)?.keys() ?? [])] : [...session.threads.values()].flatMap((each) => [...each.keys()]);
  choices($("turn"), "All turns", [...new Set(turns)].map((id) => [id, `turn ${short(id)}`]));
  const names = [...session.methods.keys()].sort();
  if ($("methods").childElementCount !== names.length) $("methods").replaceChildren(...names.map((value) => element("option", { value })));
}

// --- what is looked at
function look(row) {
  message.show(row, session);
}

function focusList() {
  $("list").focus({ preventScroll: true });
}

function jump(row) {
  if (shown.indexOf(row.position) < 0) setFilter({ ...NO_FILTER, fold: filter.fold });
  list.select(row.position);
}

function keepTurn(row) {
  pinned = session.turn(row.thread, row.turn);
  openTab("timeline");
  drawSlow();
}

// --- filters
function setFilter(change) {
  filter = { ...filter, ...change };
  writeFilter();
  refilter();
}

function writeFilter() {
  for (const name of ["text", "method", "thread", "turn"]) if ($(name).value !== filter[name]) $(name).value = filter[name];
  $("fold").checked = filter.fold;
  $("wrong").checked = filter.wrong;
  for (const each of document.querySelectorAll("[data-direction]")) {
    each.setAttribute("aria-checked", String(each.dataset.direction === filter.direction));
    each.tabIndex = each.dataset.direction === filter.direction ? 0 : -1;
  }
  $("clear").hidden = !isFiltering(filter);
}

function refilter() {
  if (!session) return;
  shown = new Shown(session, filter);
  pinned = filter.turn ? session.lastTurn() && findTurn(filter) : pinned;
  list.show(shown);
  drawSlow();
}

function findTurn({ thread, turn }) {
  for (const [id, turns] of session.threads) if ((!thread || id === thread) && turns.has(turn)) return turns.get(turn);
  return undefined;
}

let typed;
$("text").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => setFilter({ text: $("text").value }), 120);
});
$("method").addEventListener("input", () => setFilter({ method: $("method").value }));
$("thread").addEventListener("change", () => setFilter({ thread: $("thread").value, turn: "" }));
$("turn").addEventListener("change", () => setFilter({ turn: $("turn").value }));
$("fold").addEventListener("change", () => setFilter({ fold: $("fold").checked }));
$("wrong").addEventListener("change", () => setFilter({ wrong: $("wrong").checked }));
$("clear").addEventListener("click", () => setFilter({ ...NO_FILTER, fold: filter.fold }));
const directions = [...document.querySelectorAll("[data-direction]")];
for (const each of directions) {
  each.addEventListener("click", () => setFilter({ direction: each.dataset.direction }));
  each.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = directions[(directions.indexOf(each) + by + directions.length) % directions.length];
    next.focus();
    next.click();
  });
}
$("follow").addEventListener("click", () => list.follow());

// --- tabs
const tabs = ["timeline", "waiting", "figures", "stderr"];
function openTab(name) {
  for (const each of tabs) {
    $(`tab-${each}`).setAttribute("aria-selected", String(each === name));
    $(`tab-${each}`).tabIndex = each === name ? 0 : -1;
    $(`view-${each}`).hidden = each !== name;
  }
  drawSlow();
}
for (const each of tabs) {
  $(`tab-${each}`).addEventListener("click", () => openTab(each));
  $(`tab-${each}`).addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = tabs[(tabs.indexOf(each) + by + tabs.length) % tabs.length];
    openTab(next);
    $(`tab-${next}`).focus();
  });
}
setInterval(() => session && waiting.draw(session, performance.now() - clockStart), 1000);

// --- actions
function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = false;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => ($("notice").hidden = true), 6000);
}

async function attempt(work) {
  try {
    await work();
  } catch (error) {
    notice(error instanceof TypeError ? "The inspector has ended: this page has only what it received." : error.message);
  }
}

function hand(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// From what the page has, where the inspector has ended.
function kept() {
  const head = { format: "app-server-session", version: 1, began: session.title.began, server: session.title.server };
  const lines = session.rows.filter((row) => row.n >= 0).map((row) => {
    const isJson = !row.cut && (row.form === "message" || row.form === "event");
    const form = row.cut ? "text" : row.form;
    const unfinished = row.unfinished ? ',"unfinished":true' : "";
    return `{"at":${row.at},"from":"${row.from}","size":${row.size}${unfinished},"${form}":${isJson ? row.text : JSON.stringify(row.text)}}`;
  });
  return new Blob([[JSON.stringify(head), ...lines, ""].join("\n")]);
}

async function save() {
  const file = await download(session.number, "file").catch(() => kept());
  hand(file, `session-${(session.title.began || "saved").slice(0, 19).replaceAll(":", "-")}.jsonl`);
}

async function openFile(file) {
  const told = await open(file);
  await show(told.session);
}

async function startReplay() {
  const told = await replay(session.number);
  await show(told.session);
}

$("save").addEventListener("click", () => attempt(save));
$("open").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  const [file] = $("file").files;
  $("file").value = "";
  if (file) attempt(() => openFile(file));
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (file) attempt(() => openFile(file));
});
$("replay").addEventListener("click", () => attempt(startReplay));
$("export").addEventListener("click", () => attempt(async () => hand(await download(session.number, "test"), "test_session.py")));
$("session").addEventListener("change", () => show(Number($("session").value)));
$("help").addEventListener("click", () => $("keys").showModal());

const THEMES = ["", "light", "dark"];
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").title = `${name || "as the system"} (t)`;
  try {
    localStorage.setItem("theme", name);
  } catch {
    // the choice holds for this page
  }
}
function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "";
  const isDark = now ? now === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(now ? THEMES[0] : isDark ? "light" : "dark");
}
$("theme").addEventListener("click", nextTheme);
try {
  setTheme(localStorage.getItem("theme") ?? "");
} catch {
  setTheme("");
}

// --- the width of the panes
function setSplit(share) {
  const held = Math.min(0.8, Math.max(0.25, share));
  document.querySelector(".panes").style.setProperty("--split", `${held * 100}%`);
  $("split").setAttribute("aria-valuenow", Math.round(held * 100));
  list.draw();
}
$("split").addEventListener("pointerdown", (event) => {
  $("split").setPointerCapture(event.pointerId);
  $("split").onpointermove = (moved) => setSplit(moved.clientX / innerWidth);
});
$("split").addEventListener("pointerup", () => ($("split").onpointermove = null));
$("split").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 2, ArrowLeft: -2 }[event.key];
  if (by) setSplit((Number($("split").getAttribute("aria-valuenow") ?? 56) + by) / 100);
});

// --- keys
function nextViolation(by) {
  const { wrong } = session;
  if (!wrong.length) return notice("No violation was found.");
  const from = list.selected;
  const found = by > 0 ? wrong.find((each) => each > from) ?? wrong[0] : wrong.findLast((each) => each < from) ?? wrong.at(-1);
  jump(session.rows[found]);
}

function partner() {
  const row = session.rows[list.selected];
  const other = row && session.partner(row);
  if (other) jump(other);
}

const KEYS = {
  j: () => list.move(1),
  k: () => list.move(-1),
  ArrowDown: () => list.move(1),
  ArrowUp: () => list.move(-1),
  PageDown: () => list.move(list.page),
  PageUp: () => list.move(-list.page),
  Home: () => list.move(-Infinity),
  End: () => list.move(Infinity),
  Enter: () => list.toggle(),
  p: partner,
  n: () => nextViolation(1),
  N: () => nextViolation(-1),
  "/": () => $("text").focus(),
  f: () => $("find").focus(),
  1: () => openTab("timeline"),
  2: () => openTab("waiting"),
  3: () => openTab("figures"),
  4: () => openTab("stderr"),
  t: nextTheme,
  s: () => attempt(save),
  o: () => $("open").click(),
  "?": () => $("keys").showModal(),
  Escape: () => setFilter({ ...NO_FILTER, fold: filter.fold }),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  if (!session && !/^[to?]$/.test(event.key)) return; // the other keys act on a session, which is still being loaded
  const target = event.target;
  if (target.matches("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") {
      target.blur();
      $("list").focus();
    }
    return;
  }
  const isOwn = target.matches("button, summary, [role=separator], [role=button], .json");
  if (isOwn && /^(Enter|Arrow|Home|End|Page)/.test(event.key)) return; // a control's own keys
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  if (/^[jkpnN]$|^(Arrow|Home|End|Page)/.test(event.key)) focusList();
  act();
});

sessions.clear();
show(0).then(() => $("list").focus());

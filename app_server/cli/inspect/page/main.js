// Puts the page together: sessions, what the stream tells, and what is drawn when.

import * as inspector from "./feed.js";
import { Figures } from "./figures.js";
import { FilterBar } from "./filters.js";
import { bytes, count, element } from "./format.js";
import { bindKeys } from "./keys.js";
import { Lines } from "./lines.js";
import { List } from "./list.js";
import { MessagePane } from "./message.js";
import { keptTheme, nextTheme, splitPanes, Tabs } from "./panes.js";
import { isFiltering, Session } from "./session.js";
import { Stderr, Waiting } from "./side.js";
import { Timeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const SLOW = 400; // milliseconds between two drawings of what is not the list

const sessions = new Map(); // number → Session
let session;
let view;
let pinned; // the turn that the timeline keeps to
let asking = false; // for what is beside the list
let again = false; // something else has to be shown once that is there
let stale = false;
let beginning = performance.now(); // of the session, by this page's clock

const list = new List($("list"), { onSelect: (row) => message.show(row), onFollow: (on) => ($("follow").hidden = on) });
const message = new MessagePane(
  { title: $("message-title"), facts: $("facts"), json: $("json"), find: $("find"), found: $("found"), copy: $("copy"), copyTest: $("copy-test") },
  { onJump: jump, onTurn: keepTurn, fetchEntry: (n) => inspector.entry(session.number, n), fetchTest: (n) => inspector.entryTest(session.number, n), notice },
);
const timeline = new Timeline($("view-timeline"), { onJump: jump });
const waiting = new Waiting($("view-waiting"), { onJump: jump });
const figures = new Figures($("view-figures"), { onMethod: (name) => filters.set({ method: name }) });
const stderr = new Stderr($("view-stderr"));
const filters = new FilterBar(refilter);
const tabs = new Tabs(["timeline", "waiting", "figures", "stderr"], drawSlow);

// --- sessions
async function show(number) {
  if (!sessions.has(number)) sessions.set(number, new Session(number, await inspector.about(number)));
  session = sessions.get(number);
  $("server").textContent = session.title.server.join(" ");
  $("server").title = session.title.began ? `began ${session.title.began}` : "";
  $("replay").disabled = !session.title.canReplay;
  $("session").replaceChildren(...[...sessions.values()].map((each) => element("option", { value: each.number, selected: each === session }, each.title.name)));
  pinned = undefined;
  list.selected = -1;
  list.following = true;
  stderr.reset();
  message.show(undefined);
  filters.reset();
  await refilter();
}

function setState(state) {
  const words = { live: session.title.name === "live" ? "live" : "loading", ended: "ended", lost: "disconnected" };
  $("state").textContent = words[state];
  $("state").className = `state is-${state}`;
}

// --- the list under its filter
let refiltering = 0;
async function refilter() {
  if (!session) return;
  const turn = (refiltering += 1);
  const { filter } = filters;
  if (filter.turn) pinned = { thread: filter.thread, turn: filter.turn };
  try {
    const opened = await inspector.View.open(session.number, filter);
    if (turn !== refiltering) return;
    view?.close();
    view = opened;
    const lines = new Lines(view, () => list.draw());
    await new Promise((shown) => view.follow({ onNews: (news) => arrived(lines, news, shown), onLost: () => setState("lost"), onOver: () => setState(session.news.ended ? "ended" : "lost") }));
  } catch (error) {
    failed(error);
  }
}

// --- what arrives
function arrived(lines, news, shown) {
  const before = new Set(session.news.questions);
  session.news = news;
  beginning = performance.now() - news.at;
  lines.grow(news.first, news.total);
  list.questions = new Set(news.questions);
  if (list.lines !== lines) list.show(lines).then(shown);
  else list.refresh();
  setState(news.ended ? "ended" : "live");
  writeCounts();
  if (news.questions.some((n) => !before.has(n))) $("announce").textContent = `${count(news.questions.length)} questions of the server wait for an answer`;
  if (!stale) {
    stale = true;
    setTimeout(drawSlow, SLOW);
  }
}

function badge(id, number, words = "") {
  $(id).hidden = !number;
  $(id).textContent = `${count(number)}${words}`;
}

function writeCounts() {
  const { messages, sizes, matches, lost, questions, waiting: open, violations, stderr: lines } = session.news;
  const part = isFiltering(filters.filter) ? `${count(matches)} of ` : "";
  $("counts").textContent = `${part}${count(messages.client + messages.server)} messages, ${bytes(sizes.client + sizes.server)}${lost ? `, ${count(lost)} not kept` : ""}`;
  badge("waiting-count", open);
  badge("wrong-count", violations, violations === 1 ? " violation" : " violations");
  badge("stderr-count", lines);
  const asked = session.news.ended ? 0 : questions.length;
  badge("questions", asked, asked === 1 ? " question waits" : " questions wait");
  document.title = `${asked ? `(${asked}) ` : ""}inspect`;
}

// What is beside the list: only what can be seen is asked for, and one thing after the other.
async function drawSlow() {
  again = asking;
  if (!session || asking) return;
  asking = true;
  stale = false;
  const { number } = session;
  const drawing = { timeline: drawTimeline, waiting: drawWaiting, figures: drawFigures, stderr: drawStderr }[tabs.current];
  try {
    filters.offer(await inspector.choices(number));
    await drawing(number);
  } catch {
    // the stream says whether the inspector is there
  }
  asking = false;
  if (again || session.number !== number) drawSlow();
}

async function drawTimeline(number) {
  const turn = await inspector.turn(number, pinned ?? {});
  if (session.number === number) timeline.draw(turn, Boolean(pinned));
}

async function drawWaiting(number) {
  waiting.show(await inspector.waiting(number));
  waiting.draw(performance.now() - beginning, session.news.ended);
}

async function drawFigures(number) {
  figures.draw(session, await inspector.figures(number));
}

async function drawStderr(number) {
  const lines = await inspector.stderr(number, stderr.next);
  if (session.number === number) stderr.add(lines);
}

setInterval(() => session && waiting.draw(performance.now() - beginning, session.news.ended), 1000);

// --- what is looked at
async function jump(n) {
  await attempt(async () => {
    let index = await view.placeOf(n);
    if (index < 0) {
      filters.reset();
      await refilter();
      index = await view.placeOf(n);
    }
    if (index >= 0) await list.selectLine(index);
  });
}

function keepTurn(row) {
  pinned = { thread: row.thread, turn: row.turn };
  tabs.open("timeline");
}

async function nextViolation(back) {
  const from = list.selected < 0 ? {} : { after: list.selected };
  const { n } = await inspector.violation(session.number, { ...from, ...(back ? { back: 1 } : {}) });
  if (n < 0) notice("No violation was found.");
  else await jump(n);
}

function nextQuestion() {
  const { questions } = session.news;
  if (!questions.length) return notice("No question waits for an answer.");
  return jump(questions.find((n) => n > list.selected) ?? questions[0]);
}

// --- actions
function notice(text) {
  $("notice").textContent = text;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => ($("notice").textContent = ""), 6000);
}

function failed(error) {
  notice(error instanceof TypeError ? "The inspector has ended: this page has only what it shows." : error.message);
}

async function attempt(work) {
  try {
    await work();
  } catch (error) {
    failed(error);
  }
}

// The browser writes it to a file as it comes: a large session is never in the page.
function download(what) {
  element("a", { href: inspector.addressOf(session.number, what), download: "" }).click();
}

async function openFile(file) {
  await show((await inspector.open(file)).session);
}

$("save").addEventListener("click", () => download("file"));
$("export").addEventListener("click", () => download("test"));
$("open").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  const [file] = $("file").files;
  if (file) attempt(() => openFile(file).finally(() => ($("file").value = "")));
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (file) attempt(() => openFile(file));
});
$("replay").addEventListener("click", () => attempt(async () => show((await inspector.replay(session.number)).session)));
$("session").addEventListener("change", () => attempt(() => show(Number($("session").value))));
$("help").addEventListener("click", () => $("keys").showModal());
$("follow").addEventListener("click", () => list.follow());
$("theme").addEventListener("click", nextTheme);
$("wrong-count").addEventListener("click", () => attempt(() => nextViolation(false)));
$("questions").addEventListener("click", () => attempt(nextQuestion));
$("list").addEventListener("click", () => $("message").scrollIntoView({ block: "nearest" })); // it is below in a narrow window
splitPanes(() => list.draw());
keptTheme();

bindKeys({
  j: () => list.move(1),
  k: () => list.move(-1),
  ArrowDown: () => list.move(1),
  ArrowUp: () => list.move(-1),
  PageDown: () => list.move(list.page),
  PageUp: () => list.move(-list.page),
  Home: () => list.move(-Infinity),
  End: () => list.move(Infinity),
  Enter: () => attempt(() => list.toggle()),
  p: () => message.partner !== undefined && jump(message.partner),
  n: () => attempt(() => nextViolation(false)),
  N: () => attempt(() => nextViolation(true)),
  q: () => attempt(nextQuestion),
  c: () => message.copy(),
  "/": () => $("text").focus(),
  f: () => $("find").focus(),
  m: () => $("json").focus(),
  1: () => tabs.open("timeline"),
  2: () => tabs.open("waiting"),
  3: () => tabs.open("figures"),
  4: () => tabs.open("stderr"),
  t: nextTheme,
  s: () => download("file"),
  o: () => $("open").click(),
  "?": () => $("keys").showModal(),
  Escape: () => filters.clear(),
}, () => Boolean(session));

attempt(() => show(0)).then(() => $("list").focus());

// Counts, rates and sizes as small plots, and a table of methods.

import { bytes, count, duration, element, shape } from "./format.js";

const BINS = 60;
const WIDTH = 260;
const HEIGHT = 56;

export class Figures {
  constructor(box, { onMethod }) {
    this.box = box;
    this.onMethod = onMethod;
    this.order = "count";
  }

  draw(session) {
    if (this.box.hidden) return;
    const rows = session.rows;
    const length = Math.max(1, rows.length ? rows[rows.length - 1].at : 1);
    const bin = length / BINS;
    const counts = { client: new Array(BINS).fill(0), server: new Array(BINS).fill(0) };
    const sizes = { client: new Array(BINS).fill(0), server: new Array(BINS).fill(0) };
    const latencies = [];
    for (const row of rows) {
      if (row.from !== "client" && row.from !== "server") continue;
      const at = Math.min(BINS - 1, Math.floor(row.at / bin));
      counts[row.from][at] += 1;
      sizes[row.from][at] += row.size;
      if (row.latency !== undefined) latencies.push(row);
    }
    const perSecond = 1000 / bin;
    this.box.replaceChildren(
      element("div", { className: "plots" },
        plot("Messages", `${count(session.messages.client)} → ${count(session.messages.server)} ←`, counts, (most) => `${count(Math.round(most * perSecond))}/s at most`, length),
        plot("Bytes", `${bytes(session.sizes.client)} → ${bytes(session.sizes.server)} ←`, sizes, (most) => `${bytes(Math.round(most * perSecond))}/s at most`, length),
        dots("Latency", latencies, length),
      ),
      this.#table(session),
    );
  }

  #table(session) {
    const found = [...session.methods].map(([name, each]) => {
      const sorted = [...each.latencies].sort((a, b) => a - b);
      return { name, ...each, median: sorted[sorted.length >> 1] ?? -1, most: sorted.at(-1) ?? -1 };
    });
    found.sort((a, b) => (this.order === "name" ? a.name.localeCompare(b.name) : b[this.order] - a[this.order]));
    const heads = [["name", "Method"], ["count", "Count"], ["size", "Size"], ["median", "Median"], ["most", "Slowest"]];
    const head = element("tr", {}, ...heads.map(([key, title]) => {
      const button = element("button", { className: "plain" }, title);
      button.addEventListener("click", () => {
        this.order = key;
        this.draw(session);
      });
      const cell = element("th", { scope: "col" }, button);
      cell.setAttribute("aria-sort", this.order !== key ? "none" : key === "name" ? "ascending" : "descending");
      return cell;
    }));
    const body = found.map((each) => {
      const name = element("button", { className: "link", title: "Filter by this method" }, each.name);
      name.addEventListener("click", () => this.onMethod(each.name));
      const cells = [count(each.count), bytes(each.size), each.median < 0 ? "" : duration(each.median), each.most < 0 ? "" : duration(each.most)];
      return element("tr", {}, element("td", {}, name), ...cells.map((text) => element("td", { className: "right" }, text)));
    });
    return element("table", { className: "methods" }, element("thead", {}, head), element("tbody", {}, ...body));
  }
}

function framed(title, told, chart, note) {
  return element("figure", {}, element("figcaption", {}, element("strong", {}, title), element("span", {}, told)), chart, element("div", { className: "quiet" }, note));
}

// The server's part stands on the client's.
function plot(title, told, { client, server }, note, length) {
  const most = Math.max(1, ...client.map((value, at) => value + server[at]));
  const chart = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${told}` });
  const wide = WIDTH / BINS;
  client.forEach((value, at) => {
    const low = (value / most) * HEIGHT;
    const high = (server[at] / most) * HEIGHT;
    if (low) chart.append(shape("rect", { class: "from-client", x: at * wide, y: HEIGHT - low, width: wide - 0.8, height: low }));
    if (high) chart.append(shape("rect", { class: "from-server", x: at * wide, y: HEIGHT - low - high, width: wide - 0.8, height: high }));
  });
  return framed(title, told, chart, `${note(most)}, over ${duration(length)}`);
}

function dots(title, rows, length) {
  const sorted = rows.map((row) => row.latency).sort((a, b) => a - b);
  const median = sorted[sorted.length >> 1];
  const told = sorted.length ? `${duration(median)} median` : "no answers yet";
  const chart = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${told}` });
  const top = Math.log10(1 + Math.max(1, sorted.at(-1) ?? 1));
  for (const row of rows.slice(-2000)) {
    const y = HEIGHT - 3 - (Math.log10(1 + row.latency) / top) * (HEIGHT - 6);
    chart.append(shape("circle", { class: `dot from-${row.from}`, cx: 2 + (row.at / length) * (WIDTH - 4), cy: y, r: 2.2 }));
  }
  return framed(title, told, chart, sorted.length ? `${duration(sorted.at(-1))} at most, on a logarithmic scale` : "");
}

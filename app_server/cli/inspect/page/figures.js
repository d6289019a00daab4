// Counts, rates and sizes as small plots, and a table of methods.

import { bytes, count, duration, element, shape } from "./format.js";

const WIDTH = 260;
const HEIGHT = 56;

export class Figures {
  constructor(box, { onMethod }) {
    this.box = box;
    this.onMethod = onMethod;
    this.order = "count";
  }

  draw(session, told) {
    if (this.box.hidden) return;
    Object.assign(this, { session, told });
    const { width, counts, sizes } = told.histogram;
    const { messages, sizes: all, at } = session.news;
    const length = Math.max(1, at);
    const perSecond = 1000 / width;
    this.box.replaceChildren(
      element("div", { className: "plots" },
        plot("Messages", `${count(messages.client)} → ${count(messages.server)} ←`, counts, (most) => `${count(Math.round(most * perSecond))}/s at most`, length),
        plot("Bytes", `${bytes(all.client)} → ${bytes(all.server)} ←`, sizes, (most) => `${bytes(Math.round(most * perSecond))}/s at most`, length),
        dots("Latency", told.answers, length),
      ),
      this.#table(told.methods),
    );
  }

  #table(methods) {
    const found = [...methods];
    found.sort((a, b) => (this.order === "name" ? a.name.localeCompare(b.name) : b[this.order] - a[this.order]));
    const heads = [["name", "Method"], ["count", "Count"], ["size", "Size"], ["median", "Median"], ["slowest", "Slowest"]];
    const head = element("tr", {}, ...heads.map(([key, title]) => {
      const button = element("button", { className: "plain" }, title);
      button.addEventListener("click", () => {
        this.order = key;
        this.draw(this.session, this.told);
      });
      const cell = element("th", { scope: "col" }, button);
      cell.setAttribute("aria-sort", this.order !== key ? "none" : key === "name" ? "ascending" : "descending");
      return cell;
    }));
    const body = found.map((each) => {
      const name = element("button", { className: "link", title: "Filter by this method" }, each.name);
      name.addEventListener("click", () => this.onMethod(each.name));
      const cells = [count(each.count), bytes(each.size), each.median < 0 ? "" : duration(each.median), each.slowest < 0 ? "" : duration(each.slowest)];
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
  const wide = WIDTH / client.length;
  client.forEach((value, at) => {
    const low = (value / most) * HEIGHT;
    const high = (server[at] / most) * HEIGHT;
    if (low) chart.append(shape("rect", { class: "from-client", x: at * wide, y: HEIGHT - low, width: Math.max(0.5, wide - 0.5), height: low }));
    if (high) chart.append(shape("rect", { class: "from-server", x: at * wide, y: HEIGHT - low - high, width: Math.max(0.5, wide - 0.5), height: high }));
  });
  return framed(title, told, chart, `${note(most)}, over ${duration(length)}`);
}

function dots(title, answers, length) {
  const sorted = answers.map(([, latency]) => latency).sort((a, b) => a - b);
  const median = sorted[sorted.length >> 1];
  const told = sorted.length ? `${duration(median)} median` : "no answers yet";
  const chart = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${told}` });
  const top = Math.log10(1 + Math.max(1, sorted.at(-1) ?? 1));
  for (const [at, latency, from] of answers) {
    const y = HEIGHT - 3 - (Math.log10(1 + latency) / top) * (HEIGHT - 6);
    chart.append(shape("circle", { class: `dot from-${from}`, cx: 2 + (at / length) * (WIDTH - 4), cy: y, r: 2.2 }));
  }
  return framed(title, told, chart, sorted.length ? `${duration(sorted.at(-1))} at most, on a logarithmic scale` : "");
}

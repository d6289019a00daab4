// The bar of filters: what is typed and chosen there, and what can be chosen.

import { element, short } from "./format.js";
import { isFiltering, NO_FILTER } from "./session.js";

const $ = (id) => document.getElementById(id);
const TYPING = 150; // milliseconds without a key

export class FilterBar {
  constructor(onChange) {
    this.onChange = onChange;
    this.filter = { ...NO_FILTER };
    this.turns = {};
    for (const name of ["text", "method"]) {
      $(name).addEventListener("input", () => {
        clearTimeout(this.typed);
        this.typed = setTimeout(() => this.set({ [name]: $(name).value }), TYPING);
      });
    }
    $("thread").addEventListener("change", () => this.set({ thread: $("thread").value, turn: "" }));
    $("turn").addEventListener("change", () => this.set({ turn: $("turn").value }));
    $("only").addEventListener("change", () => this.set({ only: $("only").value }));
    $("fold").addEventListener("change", () => this.set({ fold: $("fold").checked }));
    $("clear").addEventListener("click", () => {
      this.clear();
      $("text").focus();
    });
    this.#directions();
    this.write();
  }

  #directions() {
    const directions = [...document.querySelectorAll("[data-direction]")];
    for (const each of directions) {
      each.addEventListener("click", () => this.set({ direction: each.dataset.direction }));
      each.addEventListener("keydown", (event) => {
        const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (!by) return;
        event.preventDefault();
        const next = directions[(directions.indexOf(each) + by + directions.length) % directions.length];
        next.focus();
        next.click();
      });
    }
  }

  set(change) {
    clearTimeout(this.typed);
    this.filter = { ...this.filter, ...change };
    this.write();
    this.onChange();
  }

  clear() {
    this.set({ ...NO_FILTER, fold: this.filter.fold });
  }

  // Without telling anybody.
  reset() {
    this.filter = { ...NO_FILTER, fold: this.filter.fold };
    this.write();
  }

  write() {
    this.#writeChoices();
    for (const name of ["text", "method", "thread", "turn", "only"]) if ($(name).value !== this.filter[name]) $(name).value = this.filter[name];
    $("fold").checked = this.filter.fold;
    for (const each of document.querySelectorAll("[data-direction]")) {
      const isChosen = each.dataset.direction === this.filter.direction;
      each.setAttribute("aria-checked", String(isChosen));
      each.tabIndex = isChosen ? 0 : -1;
    }
    $("clear").hidden = !isFiltering(this.filter);
  }

  // What the session has: turns by their threads, and methods.
  offer({ turns, methods }) {
    this.turns = turns;
    this.#writeChoices();
    if ($("methods").childElementCount !== methods.length) $("methods").replaceChildren(...methods.map((value) => element("option", { value })));
  }

  #writeChoices() {
    const { thread } = this.filter;
    const turns = thread ? this.turns[thread] ?? [] : Object.values(this.turns).flat();
    choose($("thread"), "All threads", Object.keys(this.turns).map((id) => [id, `thread ${short(id)}`]));
    choose($("turn"), "All turns", [...new Set(turns)].map((id) => [id, `turn ${short(id)}`]));
  }
}

function choose(select, first, found) {
  const wanted = [["", first], ...found];
  const now = [...select.options].map((each) => each.value);
  if (now.length === wanted.length && now.every((value, at) => value === wanted[at][0])) return;
  const chosen = select.value;
  select.replaceChildren(...wanted.map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
}

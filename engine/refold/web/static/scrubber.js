// The scrubber of a session, the live JSON of a board, and notices. Without it everything can still be read by links.
"use strict";
(() => {
  document.documentElement.classList.add("scripted");
  const token = document.querySelector("meta[name=csrf]")?.content ?? "";
  document.addEventListener("htmx:config:request", (event) => {
    if (event.detail?.ctx?.request?.headers) event.detail.ctx.request.headers["X-CSRF-Token"] = token;
  });

  const begin = () => {
    const form = document.querySelector("#scrubber:not([data-begun])");
    if (!form) return;
    form.dataset.begun = "";
    scrub(form);
  };
  begin();
  document.addEventListener("htmx:after:swap", begin); // Another policy brings a track of its own.
  const live = document.querySelector("[data-live]");
  if (live) follow(live);
  notices();
  answers();
  const verifying = document.querySelector("form[data-progress]");
  if (verifying) verify(verifying);

  function scrub(form) {
    const canvas = document.getElementById("track"), range = document.getElementById("range");
    const box = document.getElementById("moment"), field = document.getElementById("at"), play = document.getElementById("play");
    const seqs = [], kinds = [];
    let classes = [], at = Number(range.value), wanted = at, loading = false, frame = 0, timer = 0;
    const first = Number(form.dataset.first), last = Number(form.dataset.last), shown = new Map();
    shown.set(at, box.innerHTML);
    const cursor = document.getElementById("cursor");
    const placed = (path, seq) => { // The same address at another seq; the last event of a session is now.
      const address = new URL(path, location);
      if (seq === last) address.searchParams.delete("at"); else address.searchParams.set("at", seq);
      return address.pathname + address.search;
    };

    const place = (seq) => { // The place of the last event up to a seq, -1 for none.
      let low = 0, high = seqs.length;
      while (low < high) { const middle = (low + high) >> 1; if (seqs[middle] <= seq) low = middle + 1; else high = middle; }
      return low - 1;
    };
    const snapped = (seq) => { const found = place(seq); return found < 0 ? seq : seqs[found]; };
    const draw = () => {
      frame = 0;
      const ratio = window.devicePixelRatio || 1, height = 44;
      if (canvas.width !== Math.round(width * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = height * ratio; layer = null; }
      const pen = canvas.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      if (!layer) { layer = marks(width, height, ratio); ink = colour("--text"); }
      pen.drawImage(layer, 0, 0, width, height);
      const x = position(at, width);
      pen.fillStyle = ink;
      pen.fillRect(x - 1, 0, 2, height);
      pen.beginPath(); pen.arc(x, 5, 4.5, 0, 7); pen.fill();
      if (cursor) for (const end of ["x1", "x2"]) cursor.setAttribute(end, last > first ? 1000 * (at - first) / (last - first) : 500);
    };
    let layer = null, ink = "", width = canvas.clientWidth; // To ask for these in each frame would lay the page out once more.
    const position = (seq, width) => 7 + (width - 14) * (last > first ? (seq - first) / (last - first) : 0.5);
    const colour = (name) => getComputedStyle(form).getPropertyValue(name).trim();
    const marks = (width, height, ratio) => { // Each kind in its own row; many in one column are one mark.
      const made = document.createElement("canvas");
      made.width = Math.max(1, Math.round(width * ratio)); made.height = height * ratio;
      const pen = made.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      const inks = classes.map((name) => colour(`--${name}`)), seen = new Set(), row = (height - 12) / Math.max(classes.length, 1);
      if (seqs.length < (width - 14) / 9) { // There is room for shapes.
        for (let index = 0; index < seqs.length; index++) {
          pen.fillStyle = inks[kinds[index]];
          shape(pen, classes[kinds[index]], position(seqs[index], width), 27);
        }
        return made;
      }
      for (let index = 0; index < seqs.length; index++) {
        const x = Math.round(position(seqs[index], width)), kind = kinds[index], key = x * 16 + kind;
        if (seen.has(key)) continue;
        seen.add(key);
        pen.fillStyle = inks[kind];
        pen.fillRect(x - 1, 10 + kind * row, 2, row - 0.5);
      }
      return made;
    };
    const shape = (pen, name, x, y) => {
      pen.beginPath();
      const corners = { work: [0, -4.5, 4.5, 0, 0, 4.5, -4.5, 0], state: [0, -4, 4, 4, -4, 4], branch: [-4, -4, 4, -4, 0, 4], message: [-3.5, -3, 3.5, -3, 3.5, 3, -3.5, 3],
        note: [-4, -4, 4, -4, 4, 1, 1, 4, -4, 4], other: [-1.5, -4, 1.5, -4, 1.5, 4, -1.5, 4], recall: [0, -5, 1.3, -1.5, 5, -1.3, 2, 1, 3, 4.6, 0, 2.6, -3, 4.6, -2, 1, -5, -1.3, -1.3, -1.5] }[name];
      if (!corners) pen.arc(x, y, 4, 0, 7);
      else for (let at = 0; at < corners.length; at += 2) pen.lineTo(x + corners[at], y + corners[at + 1]);
      pen.closePath();
      pen.fill();
    };
    const redraw = () => { if (!frame) frame = requestAnimationFrame(draw); };
    const move = (seq) => {
      at = Math.min(Math.max(seq, first), last);
      range.value = at; field.value = at;
      range.setAttribute("aria-valuetext", String(at));
      redraw();
      wanted = at;
      load();
    };
    const load = async () => { // One request at a time; what was wanted meanwhile comes next.
      if (loading) return;
      loading = true;
      try {
        while (wanted !== Number(box.firstElementChild?.dataset.at ?? -1)) {
          const seq = wanted;
          if (!shown.has(seq)) {
            box.setAttribute("aria-busy", "true");
            const answer = await fetch(placed(form.dataset.moment, seq), { headers: { "HX-Request": "true" } });
            if (!answer.ok || !form.isConnected) break;
            shown.set(seq, await answer.text());
            if (shown.size > 200) shown.delete(shown.keys().next().value);
          }
          box.innerHTML = shown.get(seq);
          history.replaceState(null, "", placed(location.href, seq));
          for (const each of document.querySelectorAll("main > form [name=at]")) each.value = seq;
          const now = box.firstElementChild;
          document.getElementById("previous").href = placed(location.href, now.dataset.previous);
          document.getElementById("next").href = placed(location.href, now.dataset.next);
          if (seq === wanted) break;
          await new Promise((go) => setTimeout(go, 60)); // While it is dragged, the window may lag a little; the track may not.
        }
      } finally { loading = false; box.removeAttribute("aria-busy"); }
    };
    const step = (by) => {
      const now = place(at);
      if (!seqs.length) return;
      const next = by < 0 && now >= 0 && seqs[now] < at ? now : now + by;
      move(next < 0 ? first : seqs[Math.min(next, seqs.length - 1)]);
    };
    const stop = () => { clearInterval(timer); timer = 0; play.textContent = form.dataset.play; play.setAttribute("aria-pressed", "false"); };

    range.addEventListener("input", () => move(snapped(Number(range.value))));
    range.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      step(by);
    });
    for (const [id, by] of [["previous", -1], ["next", 1]]) {
      document.getElementById(id).addEventListener("click", (event) => { if (seqs.length) { event.preventDefault(); step(by); } });
    }
    form.addEventListener("submit", (event) => { event.preventDefault(); move(Number(field.value)); });
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (at >= last) move(first);
      play.textContent = form.dataset.pause;
      play.setAttribute("aria-pressed", "true");
      timer = setInterval(() => { if (!form.isConnected || at >= last || place(at) === seqs.length - 1) stop(); else step(1); }, 350);
    });
    box.addEventListener("click", (event) => { // A link to another moment of this session is a move.
      const link = event.target.closest("a[href^='?at=']");
      const seq = link && Number(new URLSearchParams(link.search).get("at"));
      if (!link || event.ctrlKey || event.metaKey || link.search.includes("all=") || seq < first || seq > last) return;
      event.preventDefault();
      move(seq);
    });
    new ResizeObserver(() => { width = canvas.clientWidth; redraw(); }).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { layer = null; redraw(); });
    redraw();
    (async () => {
      for (let after = 0; after !== null;) {
        const answer = await fetch(`${form.dataset.track}?after=${after}`);
        if (!answer.ok) return;
        const page = await answer.json();
        classes = page.classes;
        for (const seq of page.seqs) seqs.push(seq);
        for (const kind of page.kinds) kinds.push(kind);
        after = page.next;
        layer = null;
        redraw();
      }
      form.dataset.ready = "true";
    })();
  }

  function verify(form) { // A stream says how far it is; the page says what came out.
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const bar = document.getElementById("progress"), line = bar.parentElement, button = form.querySelector("button");
      const source = new EventSource(form.dataset.progress);
      line.hidden = false;
      button.disabled = true;
      source.addEventListener("progress", (message) => {
        const { done, all } = JSON.parse(message.data);
        bar.max = Math.max(all, 1); bar.value = done;
        line.lastElementChild.textContent = `${Math.round(100 * done / Math.max(all, 1))} %`;
      });
      const end = () => { source.close(); button.disabled = false; };
      source.addEventListener("report", async () => {
        end();
        const page = new DOMParser().parseFromString(await (await fetch("/store")).text(), "text/html");
        document.getElementById("verify").replaceWith(page.getElementById("verify"));
        verify(document.querySelector("form[data-progress]"));
      });
      source.addEventListener("failed", (message) => { end(); line.lastElementChild.textContent = JSON.parse(message.data).error; });
      source.addEventListener("error", end); // Else the browser would begin anew.
    });
  }

  function follow(live) { // The JSON of a board as it changes: by events, or every so many seconds.
    const refresh = async () => {
      if (!live.isConnected) return stop();
      const answer = await fetch(live.dataset.live);
      if (answer.ok) live.textContent = await answer.text();
    };
    const seconds = Number(live.dataset.seconds), timer = seconds > 0 ? setInterval(refresh, seconds * 1000) : 0;
    const changed = (event) => { if (event.detail.stream.startsWith("board/")) refresh(); };
    const stop = () => { clearInterval(timer); document.removeEventListener("refold:event", changed); };
    document.addEventListener("refold:event", changed);
    if (live.closest("dialog")) return; // It closes by itself.
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") document.getElementById("close")?.click(); });
  }

  function answers() { // A question is a link to a page; here its answer is shown in a dialog over what it is about.
    const dialog = document.getElementById("dialog"), body = dialog.querySelector(".body");
    let asked = "";
    const ask = async (address) => {
      asked = address;
      body.textContent = dialog.dataset.waiting;
      dialog.setAttribute("aria-busy", "true");
      if (!dialog.open) dialog.showModal();
      try {
        const page = new DOMParser().parseFromString(await (await fetch(address)).text(), "text/html");
        body.replaceChildren(...(page.getElementById("answer") ?? page.getElementById("main")).childNodes);
        const live = body.querySelector("[data-live]");
        if (live) follow(live);
      } catch { body.textContent = dialog.dataset.failed; }
      dialog.removeAttribute("aria-busy");
    };
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-ask], #dialog a[href^='/why?'], #dialog a[href^='/blame?']");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      ask(link.href);
    });
    dialog.addEventListener("submit", async (event) => { // A form changes something; what the dialog shows is asked anew.
      event.preventDefault();
      const answer = await fetch(event.target.action, { method: "POST", body: new URLSearchParams(new FormData(event.target)) });
      if (answer.ok) return ask(asked);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      body.replaceChildren(...(page.getElementById("main") ?? page.body).childNodes);
    });
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => { // The dialog itself is clicked only where its backdrop is.
      const at = dialog.getBoundingClientRect();
      if (event.target === dialog && (event.clientX < at.left || event.clientX > at.right || event.clientY < at.top || event.clientY > at.bottom)) dialog.close();
    });
  }

  function notices() {
    const box = document.getElementById("notices");
    if (!box || !window.EventSource) return;
    const source = new EventSource("/api/notices");
    source.addEventListener("open", () => { box.dataset.open = ""; });
    source.addEventListener("event", (message) => {
      const about = JSON.parse(message.data);
      document.dispatchEvent(new CustomEvent("refold:event", { detail: about }));
      const text = about.notice && box.dataset[about.notice];
      if (!text) return;
      const shown = document.createElement("p");
      shown.className = "notice";
      shown.textContent = text.replace("{count}", about.count ?? "").replace("{name}", about.name ?? "");
      box.append(shown);
      setTimeout(() => shown.remove(), 8000);
    });
    addEventListener("pagehide", () => source.close());
  }
})();

// The search runs in a Worker, which a browser refuses to pages from the disk. There a hidden frame does its work.
"use strict";
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const page = this.inside.document;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(page, each)));
      this.ready = this.load(page, url);
    }
    load(page, url) {
      return new Promise((resolve, reject) => {
        const script = page.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        page.head.append(script);
      });
    }
    postMessage(data) {
      this.ready = this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}

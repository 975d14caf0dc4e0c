// Coming from a search: the message that was hit is brought into sight.

/** @param {import('./log.js').Log} log @param {import('./follow.js').Follow} follow */
export function arrive(log, follow) {
  const go = () => {
    const seq = /^#m-(\d+)$/.exec(location.hash)?.[1];
    const message = seq && log.numbered(seq);
    if (!message) return;
    follow.release();
    message.scrollIntoView({ block: 'center', behavior: 'instant' });
    message.classList.add('arrived');
    setTimeout(() => message.classList.remove('arrived'), 2500);
  };
  addEventListener('hashchange', go);
  if (document.readyState === 'complete') go();
  else addEventListener('load', go, { once: true });
  go();
}

// Under which heading a conversation stands: days of the reader's own clock and
// calendar. The server, which knows neither, goes by UTC until this has run.

/**
 * @param {number} updated milliseconds
 * @param {number} now milliseconds
 * @returns {string} today, yesterday, week, month, or a month such as 2026-03
 */
export function dayOf(updated, now) {
  const days = Math.round((midnight(now) - midnight(updated)) / 86_400_000); // a day may have 23 hours, or 25
  if (days <= 0) return 'today';
  if (days === 1) return 'yesterday';
  if (days <= 7) return 'week';
  if (days <= 30) return 'month';
  const at = new Date(updated);
  return `${at.getFullYear()}-${String(at.getMonth() + 1).padStart(2, '0')}`;
}

/** @param {number} time */
function midnight(time) {
  const at = new Date(time);
  return new Date(at.getFullYear(), at.getMonth(), at.getDate()).getTime();
}

/**
 * @param {string} key of dayOf, "pinned" or "found"
 * @param {(key: string) => string} t
 * @param {string} language
 */
export function dayLabel(key, t, language) {
  switch (key) {
    case 'found':
      return '';
    case 'pinned':
      return t('js.day.pinned');
    case 'today':
      return t('js.day.today');
    case 'yesterday':
      return t('js.day.yesterday');
    case 'week':
      return t('js.day.week');
    case 'month':
      return t('js.day.month');
  }
  const [year, month] = key.split('-').map(Number);
  return new Intl.DateTimeFormat(language, { year: 'numeric', month: 'long' }).format(new Date(year, month - 1, 15));
}

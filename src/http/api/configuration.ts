/** The configuration in effect and the outcome of a reload, as `/engine/config` writes them. */
import type { LiveConfigView, ReloadResult } from '../../config/live-config.js';
import type { SettingView } from '../../config/view.js';

export function configurationJson({ configFile, settings, notices, lastReload }: LiveConfigView): unknown {
  return {
    configFile,
    settings: Object.fromEntries(Object.entries(settings).map(([key, setting]) => [key, settingJson(setting)])),
    notices: notices.map(({ key, message }) => ({ key, message })),
    lastReload: lastReload && { time: lastReload.time, ...reloadJson(lastReload) },
  };
}

export function reloadJson({ ok, message, entries }: ReloadResult): object {
  return {
    ok,
    message,
    entries: entries.map((entry) => ({
      key: entry.key,
      verdict: entry.verdict,
      before: entry.before,
      after: entry.after,
      message: entry.message,
    })),
  };
}

/** Members that are undefined are not sent. */
function settingJson({ value, source, reloadable, position }: SettingView): unknown {
  return { value, source, reloadable, position };
}

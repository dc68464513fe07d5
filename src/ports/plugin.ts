/** Plugins of other processes, whatever they are for. */

/** Code of the error that a plugin's own refusal becomes: it has not done what it was asked for. */
export const PLUGIN_REFUSED = 'PLUGIN_REFUSED';

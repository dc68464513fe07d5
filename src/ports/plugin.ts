/** All plugins in other processes have this in common. */

/** Code of the error for a plugin's own refusal: the plugin has not done what it was asked for. */
export const PLUGIN_REFUSED = 'PLUGIN_REFUSED';

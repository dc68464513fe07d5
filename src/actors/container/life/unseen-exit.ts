/** The exit code of a container whose end nobody saw, as the known engine gives it after a reboot. */
export const UNSEEN_EXIT_CODE = 255;

/** The drivers of remote logs by name. */
import { fluentdDriver } from './fluentd.js';
import { gelfDriver } from './gelf.js';
import { journaldDriver } from './journald.js';
import type { RemoteDriver } from './remote-driver.js';
import { splunkDriver } from './splunk.js';
import { syslogDriver } from './syslog.js';

export const REMOTE_DRIVERS: Readonly<Record<string, RemoteDriver>> = {
  fluentd: fluentdDriver,
  gelf: gelfDriver,
  journald: journaldDriver,
  splunk: splunkDriver,
  syslog: syslogDriver,
};

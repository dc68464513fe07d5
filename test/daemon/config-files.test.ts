/**
 * Configuration files in the style of public guides: good ones pass, broken ones get the message that a person needs.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import type { Host } from '../../src/config/host.js';
import { startUp } from '../../src/config/start-up.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';

const directory = (kind: string): string => fileURLToPath(new URL(`../../../test/config/${kind}/`, import.meta.url));
const files = (kind: string): string[] => readdirSync(directory(kind)).map((name) => `${directory(kind)}${name}`);

/** The host that the guides speak of. */
const HOST: Host = {
  systemd: true,
  cgroupVersion: 1,
  cpuRealtime: false,
  isInitialUserNamespace: true,
  userManager: false,
  lookUp: {
    group: () => undefined,
    groupLater: () => Promise.resolve(),
    tlsFiles: () => undefined,
    storageDriver: () => undefined,
    storageOpts: () => undefined,
  },
};

for (const file of files('good')) {
  test(`good: ${basename(file)}`, () => {
    const validated = startUp(['--validate', '--config-file', file], {}, '0', HOST);
    assert.deepEqual(validated, { kind: 'exit', code: 0, stdout: '', stderr: 'configuration OK\n' });
    assert.equal(startUp(['--config-file', file], {}, '0', HOST).kind, 'run');
  });
}

/** These settings cannot be tried on this machine: they name places of others, or programs that are not installed. */
const ELSEWHERE = [
  'data-root',
  'exec-root',
  'pidfile',
  'hosts',
  'group',
  'bridge',
  'cgroup-parent',
  'bip',
  'fixed-cidr',
  'bip6',
  'fixed-cidr-v6',
  'metrics-addr',
  'sockets',
];

/** Accepted for the sake of old files; another key shows what it means. */
const OLD_NAMES = ['host-gateway-ip'];

interface Shown {
  readonly settings: Readonly<Record<string, { readonly source: string }>>;
  readonly notices: readonly { readonly key: string }[];
}

type Content = Record<string, unknown>;

/** Reads a good file, without what cannot be tried here. */
function triable(file: string): Content {
  const content = JSON.parse(readFileSync(file, 'utf8')) as Content;
  for (const key of ELSEWHERE) delete content[key];
  if (!existsSync('/run/systemd/system')) delete content['exec-opts'];
  return content;
}

/** Puts files together that do not contradict each other: a daemon for each would do nothing else. */
function compatible(): { readonly names: string[]; readonly content: Content }[] {
  const groups: { readonly names: string[]; readonly content: Content }[] = [];
  for (const file of files('good')) {
    const content = triable(file);
    const isLike = (other: Content): boolean =>
      Object.entries(content).every(([key, value]) => !(key in other) || isDeepStrictEqual(other[key], value));
    const group = groups.find((one) => isLike(one.content));
    const name = basename(file, '.json');
    if (group === undefined) groups.push({ names: [name], content });
    else {
      group.names.push(name);
      Object.assign(group.content, content);
    }
  }
  return groups;
}

for (const { names, content } of compatible()) {
  test(`good: a daemon starts with ${names.join(', ')}`, async () => {
    // The daemon would set a policy of the host when it switches forwarding on, and that would stay after the test.
    content['ip-forward-no-drop'] ??= true;
    const engine = await Engine.start(engined({ file: content }));
    try {
      // Their effects are the subject of test/flag-effects; here each key is taken from the file or reported to have no
      // effect.
      const { settings, notices } = await callJson<Shown>(engine.socketPath, 'GET', '/engine/config');
      const known = [
        ...Object.entries(settings).flatMap(([name, { source }]) => (source === 'file' ? [name] : [])),
        ...notices.map(({ key }) => key),
        ...OLD_NAMES,
      ];
      for (const key of Object.keys(content))
        assert.ok(
          known.some((name) => name.startsWith(key)),
          `${key} is not known`,
        );
      const info = await callJson<{ DefaultRuntime: string; LoggingDriver: string }>(engine.socketPath, 'GET', '/info');
      assert.equal(info.DefaultRuntime, content['default-runtime'] ?? 'runc');
      assert.equal(info.LoggingDriver, content['log-driver'] ?? 'json-file');
    } finally {
      await engine.close();
    }
  });
}

const EXPECTED: Readonly<Record<string, readonly (string | RegExp)[]>> = {
  'trailing-comma': ['invalid JSON at line 3, column 1: looking for a member name in double quotes, found "}"'],
  'missing-comma': ['invalid JSON at line 3, column 3: looking for "," or "}" after a member, found "\\"mtu\\": 1400"'],
  comment: ['invalid JSON at line 2, column 3: looking for a member name in double quotes, found "// faster pulls"'],
  'single-quotes': ['invalid JSON at line 2, column 3', 'found "\'debug\': true"'],
  unclosed: ['invalid JSON at line 4, column 1: looking for "," or "]" after an item, found the end of the file'],
  'not-an-object': ['must be a JSON object'],
  'given-twice': ['invalid JSON at line 3, column 3: "mtu" is given twice'],
  'unknown-keys': [
    "the following directives don't match any configuration option: registry-mirror, log_driver, graph, shoe-size\n",
    'registry-mirror at line 2, column 3: did you mean "registry-mirrors"?',
    'log_driver at line 3, column 3: did you mean "log-driver"?',
    'graph at line 4, column 3: did you mean "data-root"?',
    /^ {2}shoe-size at line 5, column 3$/m,
  ],
  'wrong-types': [
    'must be true or false (debug at line 2, column 3)',
    'must be an integer (mtu at line 3, column 3)',
    'must be an array of strings (hosts',
    'max-file must be a string (log-opts at line 5',
  ],
  'bad-log-level': ['invalid logging level: verbose', 'invalid log format: xml'],
  'bad-log-opts': ["unknown log opt 'max-sise' for json-file log driver", 'invalid value for max-file: "none"'],
  'bad-mirror': [
    `invalid mirror: no scheme specified for "mirror.example.com": must use either 'https://' or 'http://'`,
  ],
  'bad-insecure-registry': ["insecure registry ftp://registry.lan:5000 should not contain '://'"],
  'bad-addresses': [
    'invalid CIDR address: 172.26.0.1 (bip',
    'resolver is not an ip address (dns',
    'invalid size 8 of address pool 10.0.0.0/16',
  ],
  'missing-runtime': ["specified default runtime 'nvidia' does not exist (default-runtime at line 1, column 2)"],
  'bad-runtimes': ['runtime runsc: cannot configure both path and runtimeType for the same runtime'],
  'bad-ulimit': ['ulimit soft limit must be less than or equal to hard limit: 2000 > 1000'],
  'label-conflict': ['conflict labels for rack=2 and rack=1'],
  'windows-values': [
    'default runtime com.engine.hcsshim.v1 is only available on Windows',
    'exec-opt isolation is only available on Windows',
    'storage driver windowsfilter is only available on Windows',
    'feature windows-dns-proxy is only available on Windows',
  ],
  contradictions: [
    'You specified --iptables=false with --icc=false. ICC=false uses iptables to function. ' +
      'Please set --icc or --iptables to true',
    'metrics-addr is only supported when experimental is enabled',
    'tlscacert: /nonexistent/ca.pem does not exist',
  ],
  'client-proxies': ["the following directives don't match any configuration option: proxies.default\n"],
};

for (const file of files('broken')) {
  const name = basename(file, '.json');
  test(`broken: ${name}`, () => {
    const result = startUp(['--validate', '--config-file', file], {}, '0');
    assert.ok(result.kind === 'exit');
    assert.equal(result.code, 1);
    assert.ok(result.stderr.startsWith(`unable to configure the daemon with file ${file}: `), result.stderr);
    for (const part of EXPECTED[name] ?? assert.fail('no expectation')) {
      assert.ok(
        typeof part === 'string' ? result.stderr.includes(part) : part.test(result.stderr),
        `${result.stderr}\nlacks ${String(part)}`,
      );
    }
  });
}

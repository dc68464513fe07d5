/** Everything that reads a text of others on the main thread, with the largest text that it can get. */
import { eventFilter } from '../../src/events/filters.js';
import { decodeCreate } from '../../src/http/api/container-create.js';
import { decodeUpdate } from '../../src/http/api/container-update.js';
import { parseFilters } from '../../src/http/api/filters.js';
import { decodeCommitConfig } from '../../src/http/api/images.js';
import { parseUnixTime } from '../../src/http/api/unix-time.js';
import { parseInstant } from '../../src/http/api/until.js';
import { readHeaderLines } from '../../src/http/header-lines.js';
import { jsonLimitsOf, requireJsonType } from '../../src/http/json-body.js';
import { Query } from '../../src/http/query.js';
import { applyChanges } from '../../src/images/changes.js';
import { parseReference, withTagOrDigest } from '../../src/images/reference.js';
import { parseDetachKeys } from '../../src/logs/attach/detach-keys.js';
import { logAttributes } from '../../src/logs/options/log-attributes.js';
import { LOG_DRIVERS, validateLogOptions } from '../../src/logs/options/log-options.js';
import { parseDurationMs, parseSize } from '../../src/logs/options/option-values.js';
import { parseQuery } from '../../src/network/dns/message.js';
import { endpointOptionProblems } from '../../src/network/endpoint-options.js';
import { hostsFile, resolvConfFile } from '../../src/network/files.js';
import { parseResolvConf } from '../../src/network/host-dns.js';
import { parseSubnet } from '../../src/network/subnet.js';
import { parseChallenges } from '../../src/registry/challenge.js';
import { decodeCredentials } from '../../src/registry/credentials.js';
import { retryAfterMs } from '../../src/registry/failure.js';
import { parseManifest } from '../../src/registry/manifest.js';
import { parsePlatform } from '../../src/registry/platform.js';
import { parseSearchTerm } from '../../src/registry/search.js';
import { parseCpuList } from '../../src/runtime/cpu-list.js';
import { parseDeviceRule } from '../../src/runtime/devices.js';
import { parseSeccompProfile } from '../../src/runtime/seccomp.js';
import { parseSecurityOptions } from '../../src/runtime/security-options.js';
import { mergeTmpfsOptions } from '../../src/runtime/tmpfs-options.js';
import { parseNetDev } from '../../src/stats/counters.js';
import { cleanName } from '../../src/storage/tar/entry-name.js';
import { readPax } from '../../src/storage/tar/pax.js';
import { TarParser } from '../../src/storage/tar/tar-parser.js';
import { compileGlob } from '../../src/text/glob.js';
import { JsonScan } from '../../src/text/json-scan.js';
import { parseScannedJson } from '../../src/text/parse-json.js';
import { compilePattern } from '../../src/text/pattern.js';
import { WorkBudget } from '../../src/text/work-budget.js';

export interface CostTarget {
  readonly name: string;
  readonly hints: readonly string[];
  /** Characters. */
  readonly limit: number;
  /** Compiles patterns: a hundred times the price of the others, so it is tried less often. */
  readonly isHeavy?: boolean;
  /** May throw whatever it likes: only the time counts. */
  run(text: string): unknown;
}

const KIB = 1024;
/** The limit of a request's head, with the query. */
const HEAD = 64 * KIB;
const BODY = 256 * KIB;
const LABELS = { a: 'b', 'com.example.zone': 'x'.repeat(300) };
const CONTAINER = {
  id: 'f'.repeat(64),
  dir: '/nowhere',
  driver: 'json-file',
  labels: { ['a'.repeat(300)]: 'x', ...LABELS },
  env: [`${'a'.repeat(300)}=b`],
  name: 'a'.repeat(60),
  imageName: 'busybox',
  imageId: `sha256:${'a'.repeat(64)}`,
  command: ['sh', '-c', 'x'.repeat(100)],
  created: '',
  isRunning: false,
  tty: false,
};
const EVENT = {
  Type: 'container',
  Action: 'exec_create: sh',
  scope: 'local',
  Actor: { ID: 'f'.repeat(64), Attributes: { name: 'a'.repeat(60), image: 'docker.io/library/busybox:1', ...LABELS } },
  time: 1,
  timeNano: 1,
};
const SINK = { raw: () => undefined, entry: () => false, content: () => undefined, contentEnd: () => undefined };
const always = (): boolean => true;
const budget = (): WorkBudget => new WorkBudget('fuzz');

const FILTERS = ['{"name":["^/?(a+)+$"]}', '{"label":["a=b","com.example.zone"],"id":{"f+":true}}'];
const CREATE = [
  '{"Image":"busybox","Cmd":["sh","-c","true"],"Env":["A=b"],"Labels":{"a#":"b"},' +
    '"HostConfig":{"Binds":["/a:/b:ro"],"PortBindings":{"80/tcp":[{"HostPort":"1-2"}]},' +
    '"Sysctls":{"net.ipv4.conf.eth0.x":"1"}}}',
];
const MANIFEST = [
  '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",' +
    '"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:00","size":1},' +
    '"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:00","size":1}]}',
  '{"manifests":[{"digest":"sha256:#","size":1,"platform":{"os":"linux","architecture":"arm",' +
    '"variant":"v7"},"annotations":{"a#":"b"}},',
];

function parseJson(text: string): unknown {
  const scan = new JsonScan(jsonLimitsOf({ method: 'POST', pattern: '/containers/create' }));
  const bytes = Buffer.from(text);
  scan.take(bytes);
  return parseScannedJson({ bytes, isEmpty: scan.isEmpty, firstEnd: scan.firstEnd });
}

function useFilters(text: string): void {
  const filters = parseFilters(text);
  filters.matchesLabels(LABELS);
  for (const key of ['name', 'id']) filters.matchesPattern(key, 'a'.repeat(255));
  eventFilter(filters)(EVENT as unknown as Parameters<ReturnType<typeof eventFilter>>[0]);
}

function tryDrivers(text: string): void {
  for (const driver of LOG_DRIVERS) {
    for (const name of [
      'tag',
      'max-size',
      'syslog-address',
      'gelf-address',
      'fluentd-address',
      'splunk-url',
      'syslog-facility',
      'fluentd-retry-wait',
      text,
    ]) {
      attempt(() => validateLogOptions(driver, { [name]: text }));
    }
  }
}

function attempt(action: () => unknown): void {
  try {
    action();
  } catch {
    // A refused text is cheap enough; if not, the time will show it.
  }
}

const logged = (options: Record<string, string>): unknown => logAttributes({ ...CONTAINER, options });

export const COST_TARGETS: readonly CostTarget[] = [
  { name: 'filters', hints: FILTERS, limit: HEAD, run: useFilters },
  {
    name: 'pattern',
    hints: ['^/?(a+)+$', '([a-z]{2,9}|\\d)*\\b', '(?i)(?:a|aa)+'],
    isHeavy: true,
    limit: HEAD,
    run: (text) => compilePattern(text, budget())('a'.repeat(255)),
  },
  {
    name: 'name filter',
    hints: ['^/?(a+)+$', '.*a.*b'],
    isHeavy: true,
    limit: HEAD,
    run: (text) => useFilters(JSON.stringify({ name: text.split(',') })),
  },
  {
    name: 'glob',
    hints: ['*e*e*Z', 'a/[^a-z]?\\*'],
    limit: HEAD,
    run: (text) => compileGlob(text, budget())('e'.repeat(255)),
  },
  {
    name: 'reference',
    hints: ['localhost:5000/a-b/c__d:tag@sha256:00', 'a.b.c/d/e'],
    limit: HEAD,
    run: parseReference,
  },
  {
    name: 'tag',
    hints: ['a.b-c', 'sha256:00'],
    limit: HEAD,
    run: (text) => withTagOrDigest(parseReference('a'), text),
  },
  { name: 'query', hints: ['a=b&filters=%7B%22a%22%7D&a#=%41'], limit: HEAD, run: (text) => new Query(text).all('a') },
  {
    name: 'instant',
    hints: ['1h2m3.5s', '2020-01-01T00:00:00.5+01:00', '1600000000.5'],
    limit: HEAD,
    run: (text) => parseInstant(text, 0),
  },
  {
    name: 'unix time',
    hints: ['1600000000.123456789', '2020-01-01T00:00:00Z'],
    limit: HEAD,
    run: (text) => parseUnixTime('since', text),
  },
  {
    name: 'changes',
    hints: [
      'ENV A="b c" D=\'e\' F=\\ g',
      'HEALTHCHECK --interval=1s --retries=3 CMD true',
      'LABEL a#="b"',
      'EXPOSE 80/tcp 1-2 ',
      'VOLUME ["/a"]',
      'WORKDIR /a/../b',
    ],
    limit: HEAD,
    run: (text) => applyChanges({}, [text]),
  },
  {
    name: 'head',
    hints: ['Host: x', 'Content-Length: 1', 'X-A: \t b \t ', 'Connection: Upgrade'],
    limit: HEAD,
    run: (text) => readHeaderLines(text.split('\n')),
  },
  { name: 'content type', hints: ['application/json; charset="a\\"b"; a=b'], limit: HEAD, run: requireJsonType },
  {
    name: 'credentials',
    hints: ['{"username":"a","password":"b"}'],
    limit: HEAD,
    run: (text) => decodeCredentials(Buffer.from(text).toString('base64url')),
  },
  {
    name: 'detach keys',
    hints: ['ctrl-a,b,ctrl-@'],
    limit: HEAD,
    run: (text) => parseDetachKeys(text, (message) => new Error(message)),
  },
  { name: 'platform', hints: ['linux/arm64/v8'], limit: HEAD, run: parsePlatform },
  { name: 'search term', hints: ['localhost:5000/a', 'index.docker.io/a/b'], limit: HEAD, run: parseSearchTerm },
  { name: 'JSON', hints: [...CREATE, '["a",{"b":[1]}]', '{"', '["'], limit: BODY, run: parseJson },
  { name: 'create', hints: CREATE, limit: BODY, run: (text) => decodeCreate(parseJson(text), {}, always) },
  {
    name: 'create with a long text',
    hints: ['a=b', '/a:/b:ro', '80/tcp', 'net.ipv4.conf.eth0.x=1'],
    limit: BODY,
    run: (text) =>
      decodeCreate(
        {
          Image: text,
          Cmd: text,
          Env: text.split(','),
          Labels: { [text]: text },
          HostConfig: { NetworkMode: text, Sysctls: { [text]: '1' } },
        },
        {},
        always,
      ),
  },
  {
    name: 'update',
    hints: ['{"Memory":1,"CpusetCpus":"0-1","BlkioWeightDevice":[{"Path":"/a","Weight":1}]}'],
    limit: BODY,
    run: (text) => decodeUpdate(parseJson(text), always),
  },
  {
    name: 'commit',
    hints: ['{"Labels":{"a#":"b"},"Env":["A=b"],"Volumes":{"/a#":{}}}'],
    limit: BODY,
    run: (text) => decodeCommitConfig(parseJson(text)),
  },
  {
    name: 'log options',
    hints: ['10m', 'tcp://a:1', 'udp://[::1]:1/x?y#z', '1m30s', '{{.Name}}'],
    isHeavy: true,
    limit: BODY,
    run: tryDrivers,
  },
  {
    name: 'log tag',
    hints: ['{{.Name}}/{{truncate .ID 6 | upper}}', '{{- pad .Name 9 9 -}}', '{{json "a"}}'],
    limit: BODY,
    run: (tag) => logged({ tag }),
  },
  {
    name: 'env-regex',
    hints: ['^(a+)+$', '(a|a)*'],
    isHeavy: true,
    limit: BODY,
    run: (text) => logged({ 'env-regex': text, 'labels-regex': text, labels: text }),
  },
  { name: 'size', hints: ['1.5 GiB', '-10m'], limit: BODY, run: (text) => parseSize(text, 1024) },
  { name: 'duration', hints: ['1h2m3.5s', '+.5ms'], limit: BODY, run: parseDurationMs },
  { name: 'subnet', hints: ['10.0.0.0/8', 'fd00::/64'], limit: BODY, run: (text) => parseSubnet(text, 'subnet') },
  {
    name: 'endpoint options',
    hints: ['net.ipv4.conf.IFNAME.log_martians=1,net.ipv6.conf.ifname.x=2'],
    limit: BODY,
    run: (text) =>
      endpointOptionProblems({
        'com.docker.network.endpoint.sysctls': text,
        'com.docker.network.endpoint.ifname': text,
      }),
  },
  { name: 'tmpfs options', hints: ['rw,noexec,size=64m,mode=1777,uid=0'], limit: BODY, run: mergeTmpfsOptions },
  {
    name: 'security options',
    hints: ['seccomp={"defaultAction":"SCMP_ACT_ALLOW"}', 'label=type:a', 'apparmor=unconfined'],
    limit: BODY,
    run: (text) => parseSecurityOptions(text.split('\n')),
  },
  {
    name: 'seccomp profile',
    hints: ['{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["a#"],"action":"SCMP_ACT_ALLOW"}]}'],
    limit: BODY,
    run: parseSeccompProfile,
  },
  { name: 'device rule', hints: ['c 1:3 rwm', 'a *:* r'], limit: BODY, run: parseDeviceRule },
  { name: 'cpu list', hints: ['0-3,5', '0-8191'], limit: BODY, run: parseCpuList },
  { name: 'manifest', hints: MANIFEST, limit: BODY, run: (text) => parseManifest(Buffer.from(text), undefined, 'a') },
  {
    name: 'challenge',
    hints: ['Bearer realm="https://a",service="b",scope="c:d:e"', 'Basic realm=a, Negotiate'],
    limit: 16 * KIB,
    run: parseChallenges,
  },
  {
    name: 'retry-after',
    hints: ['120', 'Wed, 21 Oct 2015 07:28:00 GMT'],
    limit: 16 * KIB,
    run: (text) => retryAfterMs(text, 0),
  },
  { name: 'name in a tar', hints: ['./a/../b//c', '/a/'], limit: BODY, run: cleanName },
  {
    name: 'PAX records',
    hints: ['30 mtime=1600000000.123456789\n12 path=a/b\n', '25 SCHILY.xattr.user.a=b\n'],
    limit: BODY,
    run: (text) => readPax(Buffer.from(text)),
  },
  {
    name: 'tar',
    hints: ['a'.repeat(100), `a${'\0'.repeat(99)}0000644\0`],
    limit: BODY,
    run: (text) => new TarParser(SINK).write(Buffer.from(text)),
  },
  {
    name: 'DNS query',
    hints: [
      '\u0000\u0001\u0001\u0000\u0000\u0001\u0000\u0000\u0000\u0000\u0000\u0000\u0003abc\u0000\u0000\u0001\u0000\u0001',
    ],
    limit: HEAD,
    run: (text) => parseQuery(Buffer.from(text, 'latin1')),
  },
  {
    name: 'resolv.conf',
    hints: ['nameserver 1.1.1.1\nsearch a b\noptions ndots:1 # x'],
    limit: BODY,
    run: parseResolvConf,
  },
  {
    name: 'network files',
    hints: ['a:10.0.0.1', 'a.b'],
    limit: BODY,
    run: (text) => [
      hostsFile({
        hostname: text,
        domainname: text,
        addresses: [],
        extraHosts: [text],
        hostGatewayIps: [],
        hasIpv6: true,
        linked: [],
      }),
      resolvConfFile({ nameservers: [], search: [text], options: [text] }),
    ],
  },
  { name: 'net/dev', hints: ['x\ny\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n'], limit: BODY, run: parseNetDev },
];

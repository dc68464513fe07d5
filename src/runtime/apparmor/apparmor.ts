/**
 * AppArmor on a host whose kernel has it: which profile a container gets, and that this profile is loaded. The kernel
 * forgets profiles at a reboot, and an upgrade of the host's AppArmor may remove those that no file describes, so each
 * start of a container looks for its profile.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { internal, invalid, messageOf } from '../../errors/engine-error.js';
import type { HostConfig } from '../../ports/container.js';
import type { Logger } from '../../ports/logger.js';
import { isOnPath } from '../../sys/process/on-path.js';
import { runProgram } from '../../sys/process/spawn.js';
import { parseSecurityOptions } from '../security-options.js';
import { DEFAULT_PROFILE, defaultProfile } from './profile.js';

const UNCONFINED = 'unconfined';
const PARSER = 'apparmor_parser';

export interface AppArmorHost {
  /** Returns the kernel's list of loaded profiles: lines such as `name (enforce)`. */
  loaded(): Promise<string>;
  /** Returns the label of this process. */
  ownLabel(): Promise<string>;
  readonly hasParser: boolean;
  readonly run: typeof runProgram;
}

/** Keeps a text that lives as long as the loaded profiles do: until the next boot. */
export interface ProfileMark {
  read(): Promise<unknown>;
  write(text: string): Promise<void>;
}

export const APPARMOR_HOST: AppArmorHost = {
  loaded: () => readFile('/sys/kernel/security/apparmor/profiles', 'utf8'),
  ownLabel: () => readFile('/proc/self/attr/current', 'utf8'),
  get hasParser() {
    return isOnPath(PARSER);
  },
  run: runProgram,
};

export class AppArmor {
  readonly #host: AppArmorHost;
  readonly #mark: ProfileMark;
  #loading: Promise<void> | undefined;
  #hasFailed = false;

  private constructor(host: AppArmorHost, mark: ProfileMark) {
    this.#host = host;
    this.#mark = mark;
  }

  /** Returns undefined, and says so in the log, when there is no profile and no program that could load one. */
  static async open(mark: ProfileMark, log: Logger, host = APPARMOR_HOST): Promise<AppArmor | undefined> {
    const found = host.hasParser || (await host.loaded().then(isLoaded, () => false));
    if (found) return new AppArmor(host, mark);
    log.warn(
      {},
      `containers are not confined by AppArmor: ${PARSER} is not installed (Debian package apparmor), ` +
        `and the profile ${DEFAULT_PROFILE} is not loaded`,
    );
    return undefined;
  }

  /** False after the default profile could not be loaded: then no container starts under it. */
  get isInEffect(): boolean {
    return !this.#hasFailed;
  }

  /** Returns the profile of a container. A privileged one has none, whatever its options say, as under dockerd. */
  profileOf({ Privileged, SecurityOpt }: Pick<HostConfig, 'Privileged' | 'SecurityOpt'>): string {
    return Privileged ? UNCONFINED : parseSecurityOptions(SecurityOpt ?? []).apparmor || DEFAULT_PROFILE;
  }

  /**
   * Loads the default profile unless it is there with the text of this version. One that an operator has loaded by this
   * name stays.
   */
  async prepare(): Promise<void> {
    const text = await this.#text();
    const loads = isLoaded(await this.#host.loaded()) ? await this.#isOutdated(text) : true;
    if (loads) await this.#load(text);
  }

  /**
   * Resolves when the kernel has the profile; the default one is loaded when it is missing.
   * @throws EngineError invalid for another one that is missing, internal when the default one cannot be loaded.
   */
  async require(profile: string): Promise<void> {
    // Only the runtime knows how the kernel reads the names of stacks and of other namespaces.
    if (profile === UNCONFINED || profile.startsWith(':') || profile.includes('//&')) return;
    if (profile === DEFAULT_PROFILE) await this.#loading?.catch(() => undefined);
    if (isLoaded(await this.#host.loaded(), profile)) return;
    if (profile !== DEFAULT_PROFILE)
      throw invalid(
        `unable to apply apparmor profile: apparmor failed to apply profile: ${JSON.stringify(profile)} is not loaded`,
      );
    await this.#load(await this.#text());
  }

  async #text(): Promise<string> {
    const label = (await this.#host.ownLabel()).replace(/\0?\n?$/, '').replace(/ \([a-z]+\)$/, '');
    return defaultProfile({ parser: await this.#parserVersion(), daemonLabel: label });
  }

  async #parserVersion(): Promise<readonly [number, number]> {
    if (!this.#host.hasParser) return [0, 0];
    const { stdout } = await this.#host.run(PARSER, ['--version']);
    const [, major = '0', minor = '0'] = /version (\d{1,4})\.(\d{1,4})/.exec(stdout) ?? [];
    return [Number(major), Number(minor)];
  }

  /** Tells whether this daemon or an older one has loaded another text, or was ended while it loaded one. */
  async #isOutdated(text: string): Promise<boolean> {
    const mark = await this.#mark.read();
    return this.#host.hasParser && mark !== undefined && mark !== digestOf(text);
  }

  #load(text: string): Promise<void> {
    this.#loading ??= this.#replace(text).finally(() => (this.#loading = undefined));
    return this.#loading;
  }

  async #replace(text: string): Promise<void> {
    try {
      await this.#mark.write('');
      // The kernel replaces the profile of running processes, too. The text is not looked for in the parser's cache.
      const { exitCode, stderr } = await this.#host.run(PARSER, ['--replace', '--skip-cache'], text);
      if (exitCode !== 0) throw internal(`${PARSER} ended with ${exitCode}: ${stderr.trim()}`);
      await this.#mark.write(digestOf(text));
      this.#hasFailed = false;
    } catch (error) {
      this.#hasFailed = true;
      throw internal(
        `AppArmor enabled on system but the ${DEFAULT_PROFILE} profile could not be loaded: ${messageOf(error)}`,
        { code: 'APPARMOR', cause: error },
      );
    }
  }
}

function isLoaded(list: string, profile = DEFAULT_PROFILE): boolean {
  return list.split('\n').some((line) => line.slice(0, line.lastIndexOf(' (')) === profile);
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** The reply to GET /version. */
import type { VersionFacts } from '../../actors/engine/system.js';
import { MAX_API_VERSION, MIN_API_VERSION } from '../api-version.js';

export function versionJson({ build, host, experimental, components }: VersionFacts): unknown {
  const engine = {
    ApiVersion: MAX_API_VERSION.text,
    Arch: host.architecture,
    BuildTime: build.time,
    Experimental: String(experimental),
    GitCommit: build.commit,
    GoVersion: '',
    KernelVersion: host.kernelVersion,
    MinAPIVersion: MIN_API_VERSION.text,
    Os: 'linux',
  };
  return {
    Platform: { Name: `engined ${build.version}` },
    Components: [
      { Name: 'Engine', Version: build.engineVersion, Details: engine },
      ...components.map(({ name, version, commit }) => ({
        Name: name,
        Version: version,
        Details: { GitCommit: commit },
      })),
    ],
    Version: build.engineVersion,
    ApiVersion: MAX_API_VERSION.text,
    MinAPIVersion: MIN_API_VERSION.text,
    GitCommit: build.commit,
    // Clients print it; there is no Go in this engine.
    GoVersion: '',
    Os: 'linux',
    Arch: host.architecture,
    KernelVersion: host.kernelVersion,
    ...(experimental ? { Experimental: true } : {}),
    BuildTime: build.time,
  };
}

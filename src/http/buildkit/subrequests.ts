/** Answers questions about a Dockerfile that need no build (`docker build --call`). */
import { internal } from '../../errors/engine-error.js';
import type { LoadedDockerfile } from './dockerfile-source.js';
import type { DockerfileAttrs } from './frontend-attrs.js';
import type { Solution } from './solver.js';

export interface Subrequests {
  /** @throws EngineError for a question that has no answer here. */
  answer(request: string, dockerfile: LoadedDockerfile, attrs: DockerfileAttrs): Promise<Solution>;
}

const DESCRIBE = 'frontend.subrequests.describe';

export const noSubrequests: Subrequests = {
  answer: async (request) => {
    if (request !== DESCRIBE) throw internal(`unsupported request ${request}`);
    return {
      exporterResponse: {},
      metadata: { 'result.json': Buffer.from('[]'), 'result.txt': Buffer.from(''), version: Buffer.from('1.0.0') },
    };
  },
};

/** WORKDIR: the directory is made for the user of the stage. */
import { cleanPath } from '../../../build/files/paths.js';
import { directoryLayer } from '../copy-step.js';
import type { StageState } from '../stage-state.js';
import type { Operation } from './step.js';

export function workdirOperation(state: StageState, path: string): Operation {
  const { User = '' } = state.config;
  return {
    identity: ['WORKDIR', path, User],
    recipe: { operation: { file: { actions: [{ Action: { mkdir: { path, makeParents: true } } }] } } },
    content: () => Promise.resolve(null),
    perform: async ({ tools: { deps, layers }, parent }) => {
      const files = { ...state, topLayer: parent?.layer };
      const layer = await directoryLayer(deps, layers, files, cleanPath(path), User);
      return { layer: layer.chainId };
    },
  };
}

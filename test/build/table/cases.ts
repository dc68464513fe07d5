/** All cases of the table, and those that the classic builder builds, too. */
import type { TableCase } from './case.js';
import { ADD_CASES } from './cases/add.js';
import { CONFIG_CASES } from './cases/config.js';
import { COPY_FLAG_CASES } from './cases/copy-flags.js';
import { COPY_CASES } from './cases/copy.js';
import { FILE_AND_STAGE_CASES } from './cases/files-and-stages.js';
import { RARE_MOUNT_CASES } from './cases/rare-mounts.js';
import { RARE_CASES } from './cases/rare.js';
import { RUN_CASES } from './cases/run.js';
import { TYPED_CASES } from './cases/typed.js';
import { VARIABLE_CASES } from './cases/variables.js';

export const CASES: readonly TableCase[] = [
  ...COPY_CASES,
  ...COPY_FLAG_CASES,
  ...ADD_CASES,
  ...CONFIG_CASES,
  ...VARIABLE_CASES,
  ...FILE_AND_STAGE_CASES,
  ...RUN_CASES,
  ...TYPED_CASES,
  ...RARE_CASES,
  ...RARE_MOUNT_CASES,
];

/** Those that are about files: what is copied, what stages give each other, and what commands leave. */
export const FILE_CASES: ReadonlySet<TableCase> = new Set([
  ...COPY_CASES,
  ...COPY_FLAG_CASES,
  ...ADD_CASES,
  ...FILE_AND_STAGE_CASES,
  ...RUN_CASES,
  ...TYPED_CASES,
]);

/** Features that this builder lacks, names of chance, and what differs in nothing from what other cases show. */
const NOT_CLASSIC = [
  /^(?:expansion|chmod|exclude|ignore|a document|run a mount|a stage that) /,
  /^(?:expansions|name of .*|from its own .*|run variables.*)$/,
];

/** The classic builder has no further contexts, no secrets and no platforms, and it reads expansions the same way. */
export const CLASSIC_CASES: readonly TableCase[] = CASES.filter(
  ({ name, dockerfile, options, contexts, references, secrets, platform }) =>
    !(options ?? contexts ?? references ?? secrets ?? platform) &&
    !NOT_CLASSIC.some((pattern) => pattern.test(name)) &&
    !/--(?:mount|network|security)|no\.example/.test(dockerfile),
);

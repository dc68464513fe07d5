/** Cases whose result is not dockerd's, and why. The list shrinks: a case in it that does not differ fails. */

const list = (reasons: Readonly<Record<string, readonly string[]>>): ReadonlyMap<string, string> =>
  new Map(Object.entries(reasons).flatMap(([reason, names]) => names.map((name): [string, string] => [name, reason])));

const WORDS = 'the same is refused in other words';
const ATTRIBUTES = 'user attributes of files in archives are kept';
const WHITEOUTS = 'names of whiteouts are no files of an image, and dockerd takes them for what they hide';

export const DIFFERENCES: ReadonlyMap<string, string> = list({
  [WORDS]: [
    'pattern that is broken',
    'add an archive that is cut',
    'from nothing that is there',
    'rare: a document by the name of a path',
    'rare: a list that ends in a comma',
  ],
  [ATTRIBUTES]: ['add several archives', 'add an archive with attributes'],
  [WHITEOUTS]: ['add an archive of whiteouts'],
  'dockerd makes an empty file of one that an exception takes back': ['ignore "**\\n!**/*.md\\nd/g\\n"'],
  'a link of an archive that leads to nothing is not followed': ['add an archive with a link that leads out'],
  'dockerd tells where the files of a base come from after the steps over them': ['a context as base'],
  'a step has more mounts, which hide parts of /proc and /sys': ['run what is mounted'],
});

/** Those that fail here alone: built among others they would cancel these. */
export const FAILING_HERE: ReadonlySet<string> = new Set(['add an archive with a link that leads out']);

export const CLASSIC_DIFFERENCES: ReadonlyMap<string, string> = list({
  [WORDS]: [
    'copy below what is no directory',
    'a link to itself',
    'links to each other as source',
    'owner by name in nothing',
    'pattern that is broken',
    'directory to a file',
    'directory to a file with a slash',
    'directory below a link to a file',
    'file below a file',
    'file far below a link to a file',
    'file into a file',
    'chown by name without users',
    'add an archive that is cut',
    'add an archive that leads out',
    'add an archive over a file',
    'workdir that is a file',
    'run a command without a shell',
    'rare: link a directory over a file',
    'rare: a variable for a stage',
    'rare: a list that ends in a comma',
  ],
  [ATTRIBUTES]: ['add several archives', 'add an archive with attributes'],
  [WHITEOUTS]: ['add an archive of whiteouts'],
  'sources are found and named as by BuildKit': ['pattern below a link', 'absolute link as source'],
  'directories on the way to a copy belong to its owner, as by BuildKit': ['chown by numbers'],
  'an owner that is too large is refused': ['chown of a large number'],
  'a text in the Dockerfile is refused where dockerd leaves it out': ['documents and files'],
  'a link of an archive that leads to nothing is not followed': ['add an archive with a link that leads out'],
  'a further health check begins anew, as by BuildKit': ['health twice'],
  'variables have the meaning that they have by BuildKit': [
    'rare: arguments of all stages of the platform',
    'rare: arguments that hide each other across stages',
    'rare: an argument on its own line of itself',
    'args on one line',
    'arg of a stage is for those that are based on it',
    'arg after env',
    'arg twice',
    'automatic args',
    'automatic args in FROM',
    'typed: a chain of stages with variables',
  ],
  'the history has the quotes of a default': ['arg in quotes', 'arg in a command', 'rare: arguments with signs'],
});

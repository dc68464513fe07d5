/** Keeps contents that the tar needs to be rebuilt, but whose names another entry took later. */
import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { fsPath, toBytePath } from '../byte-path.js';
import { displacedDir } from './split-format.js';

export class DisplacedFiles {
  readonly #dir: string;
  readonly #numbers = new Map<string, number[]>();
  #count = 0;

  constructor(
    private readonly root: string,
    tarSplitPath: string,
  ) {
    this.#dir = displacedDir(tarSplitPath);
  }

  /** Moves the file away from its name. */
  take(path: string): void {
    if (this.#count === 0) mkdirSync(this.#dir, 0o700);
    const number = this.#count++;
    renameSync(fsPath(this.root + path), fsPath(`${toBytePath(this.#dir)}/${number}`));
    const numbers = this.#numbers.get(path);
    if (numbers) numbers.push(number);
    else this.#numbers.set(path, [number]);
  }

  finish(): void {
    if (this.#count > 0) writeFileSync(`${this.#dir}/index.json`, JSON.stringify([...this.#numbers]));
  }
}

/** Functions of a shared library, declared from their prototypes. Only this file loads one. */
import koffi, { type LibraryHandle } from 'koffi';
import { unkilled } from './unkilled.js';

export class NativeLibrary {
  readonly #handle: LibraryHandle;

  private constructor(handle: LibraryHandle) {
    this.#handle = handle;
  }

  /** Takes the symbols of the process itself, which is linked with the C library whatever its file name is. */
  static ofProcess(): NativeLibrary {
    return new NativeLibrary(koffi.load(null));
  }

  /**
   * Loads a library where the dynamic linker finds that name.
   * @returns undefined when there is none.
   */
  static find(soname: string): NativeLibrary | undefined {
    try {
      return new NativeLibrary(unkilled(() => koffi.load(soname)));
    } catch {
      return undefined;
    }
  }

  /** Declares a C function for calls of either kind. `func` and `pooled` are what is wanted of it, mostly. */
  declare(prototype: string): ReturnType<LibraryHandle['func']> {
    return unkilled(() => this.#handle.func(prototype));
  }

  /**
   * Declares a C function from its prototype, for instance `int dup(int fd)`. The call is synchronous: only for what
   * cannot block. A variadic function is declared with the arguments it is called with (right on Linux x64 and arm64).
   * @throws Error at once when the library has no such symbol.
   */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- only the caller knows the prototype
  func<Args extends readonly unknown[], Result = number>(prototype: string): (...args: Args) => Result {
    return this.declare(prototype);
  }

  /** As `func`, on a thread of libuv's pool. Buffers among the arguments must stay referenced until it is done. */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- only the caller knows the prototype
  pooled<Args extends readonly unknown[]>(prototype: string): (...args: Args) => Promise<number> {
    const call = this.declare(prototype);
    return (...args) =>
      new Promise((resolve, reject) => {
        call.async(...args, (error: unknown, result: number) => {
          if (error === null) resolve(result);
          else reject(error);
        });
      });
  }
}

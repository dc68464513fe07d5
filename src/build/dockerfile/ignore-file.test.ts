import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ignoreFileNames, IgnoreMatcher, type DirectoryMatch, parseIgnoreFile } from './ignore-file.js';

/** Says it as a walk does, directory by directory. */
function byWalk(matcher: IgnoreMatcher, path: string): boolean {
  let parent: DirectoryMatch | undefined;
  let isIgnored = false;
  const parts = path.split('/');
  for (const end of parts.keys()) {
    const result = matcher.matchBelow(parts.slice(0, end + 1).join('/'), parent);
    parent = result.match;
    isIgnored = result.isIgnored;
  }
  return isIgnored;
}

describe('ignore files', () => {
  it('are read without comments, clean and relative', () => {
    const text = '\uFEFF# c\n  a/./b/ \r\n\n/x\n! /y/../z\n #no comment\n!\n.\n';
    assert.deepEqual(parseIgnoreFile(text), ['a/b', 'x', '!z', '#no comment', '!', '.']);
  });

  it('of a Dockerfile go before the one for all', () => {
    assert.deepEqual(ignoreFileNames('dir/Dockerfile'), ['dir/Dockerfile.dockerignore', '.dockerignore']);
  });

  it('are refused when a pattern is bad', () => {
    assert.throws(() => new IgnoreMatcher(['!']), /illegal exclusion pattern: "!"/);
    assert.throws(() => new IgnoreMatcher(['a[']), /syntax error in pattern/);
    assert.throws(() => new IgnoreMatcher(['a\\']), /syntax error in pattern/);
  });
});

describe('patterns', () => {
  const cases: readonly (readonly [patterns: string, ignored: string, kept: string])[] = [
    ['a', 'a a/b a/b/c', 'b ab b/a'],
    ['*', 'a a/b .x', ''],
    ['*.go', 'a.go .go', 'a/b.go a.goo'],
    ['*/*.go', 'x/a.go', 'a.go x/y/a.go'],
    ['**/*.go', 'a.go x/a.go x/y/z.go', 'a.go2 x'],
    ['**', 'a a/b', ''],
    ['**/x', 'x a/x a/b/x x/y', 'ax xa'],
    ['**x', 'x ax a/x a/bx', 'xa'],
    ['a/**', 'a/b a/b/c', 'a ab'],
    ['a**', 'a ab a/b', 'b'],
    ['a/**/b', 'a/b a/x/b a/x/y/b/z', 'a/xb ab a'],
    ['**/a/**', 'a/b x/a/b', 'a x/a b/ab'],
    ['a?c', 'abc', 'ac a/c abbc'],
    ['[a-c]x', 'ax cx', 'dx x'],
    ['[^a]x', 'bx', 'ax'],
    ['\\*', '*', 'a'],
    ['a.b (1)', 'a.b (1)', 'aXb'],
    ['* !a', 'b c/d', 'a a/b'],
    ['a !a/b', 'a/c a', 'a/b a/b/c'],
    ['a !a/b a/b/c', 'a/b/c a/d', 'a/b a/b/d'],
    ['**/*.md !README.md', 'x.md a/README.md', 'README.md'],
    ['* !**/*.ts', 'a b/c.js', 'x.ts b/x.ts'],
    ['!a a', 'a a/b', 'b'],
    ['.', '', 'a'],
  ];
  for (const [patterns, ignored, kept] of cases) {
    it(patterns, () => {
      const matcher = new IgnoreMatcher(patterns.includes('(') ? [patterns] : patterns.split(' '));
      const list = (text: string): string[] => (patterns.includes('(') ? [text] : text.split(' ').filter(Boolean));
      for (const [paths, expected] of [[list(ignored), true] as const, [list(kept), false] as const]) {
        for (const path of paths) {
          assert.equal(matcher.matches(path), expected, path);
          assert.equal(byWalk(matcher, path), expected, `${path}, by a walk`);
        }
      }
    });
  }

  it('that are made to be expensive cost their length times that of the path', () => {
    const matcher = new IgnoreMatcher([`${'*a'.repeat(400)}b`, `${'**/a'.repeat(200)}*b`]);
    assert.equal(matcher.matches('a'.repeat(4000)), false);
  });
});

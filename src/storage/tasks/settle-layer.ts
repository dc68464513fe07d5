/** Worker task: completes an unpacked layer with what only the layers below it know. */
import { linkSync, mkdirSync, readdirSync, unlinkSync } from 'node:fs';
import { invalid } from '../../errors/engine-error.js';
import type { UnsettledLayer } from '../../ports/storage.js';
import { fsPath, toBytePath, toText } from '../byte-path.js';
import { copyAttributes, copyInode, copyTimes } from '../copy-attributes.js';
import { isOpaque, isWhiteout, makeOpaque, makeWhiteout } from '../layers/marks.js';
import { mergedChild, MergedView, resolveMerged } from '../layers/merged-view.js';
import { statOf } from '../stat-of.js';
import { storageError } from '../storage-error.js';

/** @throws EngineError invalid for a hard link whose target is in no layer. */
export function settleLayer(input: UnsettledLayer): void {
  const diff = toBytePath(input.diffDir);
  const lowers = input.lowerDirs.map(toBytePath);
  try {
    if (isOpaque(diff)) hideLowers(diff, lowers);
    for (const { path, target } of input.danglingLinks) link(diff, lowers, path, target);
    const view = new MergedView(lowers);
    for (const path of input.whiteouts) removeIdle(diff, view, path);
    for (const path of input.implicitDirs) adopt(diff, view, path);
  } catch (error) {
    throw storageError(error, 'completing layer');
  }
}

/** Removes a whiteout that hides nothing: overlayfs lists it where a directory is in this layer only. */
function removeIdle(diff: string, view: MergedView, path: string): void {
  if (view.find(path) && !isHidden(diff, path)) return;
  const at = `${diff}/${path}`;
  keepingTimes(parentOf(at), () => unlinkSync(fsPath(at)));
}

/** Hides each entry of the layers below, because overlayfs ignores that the root of a layer is opaque. */
function hideLowers(diff: string, lowers: readonly string[]): void {
  const before = statOf(diff);
  const names = new Set(lowers.flatMap((lower) => readdirSync(fsPath(lower), 'latin1')));
  for (const name of names) {
    if (!mergedChild(lowers, name)) continue;
    const own = statOf(`${diff}/${name}`);
    if (!own) makeWhiteout(`${diff}/${name}`);
    else if (own.isDirectory()) makeOpaque(`${diff}/${name}`);
  }
  if (before) copyTimes(before, diff);
}

/** Gives a directory that no entry named the attributes of the one below it, if there is one. */
function adopt(diff: string, view: MergedView, path: string): void {
  const below = path === '' ? rootOf(view) : view.find(path);
  if (below?.stat.isDirectory() && !isHidden(diff, path))
    copyAttributes(below.at, below.stat, path === '' ? diff : `${diff}/${path}`);
}

function rootOf(view: MergedView): ReturnType<MergedView['find']> {
  const at = view.roots[0];
  const stat = at === undefined ? undefined : statOf(at);
  return at !== undefined && stat ? { at, stat, parts: view.roots } : undefined;
}

/** True when this layer hides the place where the directory was in the layers below. */
function isHidden(diff: string, path: string): boolean {
  for (let slash = path.indexOf('/'); slash >= 0; slash = path.indexOf('/', slash + 1)) {
    if (isOpaque(`${diff}/${path.slice(0, slash)}`)) return true;
  }
  return false;
}

/**
 * Makes a hard link whose target is below. The target is first copied into this layer, because links do not cross
 * layers.
 */
function link(diff: string, lowers: readonly string[], path: string, target: string): void {
  const roots = [diff, ...lowers];
  const found = resolveMerged(roots, target);
  if (!found) throw invalid(`hard link ${quote(path)}: target ${quote(target)} is in no layer`, { code: 'TAR_LINK' });
  if (found.entry.parts)
    throw invalid(`hard link ${quote(path)}: target ${quote(target)} is a directory`, { code: 'TAR_LINK' });
  const source = `${diff}/${found.path}`;
  if (found.entry.at !== source) {
    makeParents(diff, lowers, found.path);
    keepingTimes(parentOf(source), () => copyInode(found.entry.at, found.entry.stat, source));
  }
  const to = `${diff}/${path}`;
  requireDirectories(diff, path);
  keepingTimes(parentOf(to), () => {
    const taken = statOf(to);
    if (taken && isWhiteout(taken)) unlinkSync(fsPath(to));
    else if (taken) throw invalid(`hard link ${quote(path)} is in the place of a directory`, { code: 'TAR_LINK' });
    linkSync(fsPath(source), fsPath(to));
  });
}

/** A symbolic link on the way would lead out of the layer. @throws EngineError invalid. */
function requireDirectories(diff: string, path: string): void {
  for (let slash = path.indexOf('/'); slash >= 0; slash = path.indexOf('/', slash + 1)) {
    if (!statOf(`${diff}/${path.slice(0, slash)}`)?.isDirectory())
      throw invalid(`hard link ${quote(path)} is not in a directory of the layer`, { code: 'TAR_LINK' });
  }
}

function makeParents(diff: string, lowers: readonly string[], path: string): void {
  const view = new MergedView(lowers);
  for (let slash = path.indexOf('/'); slash >= 0; slash = path.indexOf('/', slash + 1)) {
    const directory = path.slice(0, slash);
    const at = `${diff}/${directory}`;
    if (statOf(at)) continue;
    keepingTimes(parentOf(at), () => mkdirSync(fsPath(at), 0o700));
    const below = view.find(directory);
    if (below) copyAttributes(below.at, below.stat, at);
  }
}

const parentOf = (at: string): string => at.slice(0, at.lastIndexOf('/'));
const quote = (path: string): string => JSON.stringify(toText(path));

function keepingTimes(directory: string, work: () => void): void {
  const before = statOf(directory);
  work();
  if (before) copyTimes(before, directory);
}

/**
 * Lets the prebuilt binaries of uWebSockets.js, one for each version of Node, load on glibc older than 2.38 (Debian 12
 * has 2.36).
 *
 * They were built against headers that rename strtol, strtoul and sscanf to __isoc23_*, symbols of GLIBC_2.38,
 * which differ from the classic ones only in accepting the 0b prefix. Nothing else in them is newer than 2.36. So each
 * of these undefined symbols gets the classic name (the tail of its own string) and the oldest version, and the need
 * for GLIBC_2.38 is marked weak, which makes the loader accept that it is missing.
 *
 * Runs after npm install; does nothing where glibc is new enough or the file was patched before; the original stays
 * beside it as *.orig. Exits 1 with the reason when the file does not look as described here.
 */
import { copyFileSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const NEEDED = 'GLIBC_2.38';
const RENAMED = new Set(['__isoc23_strtol', '__isoc23_strtoul', '__isoc23_sscanf']);
const PREFIX_LENGTH = '__isoc23_'.length;
/** The version that every glibc of the architecture gives to the classic functions. */
const OLDEST = { x64: 'GLIBC_2.2.5', arm64: 'GLIBC_2.17' };
/** gABI and GNU values: section types, and the flag that makes a needed version optional. */
const SHT_DYNSYM = 11;
const SHT_GNU_VERNEED = 0x6ffffffe;
const SHT_GNU_VERSYM = 0x6fffffff;
const VER_FLG_WEAK = 2;
const SYMBOL_BYTES = 24;

function fail(reason) {
  console.error(`patch-uws: ${reason}`);
  process.exit(1);
}

function olderThan238(version) {
  const [major, minor] = version.split('.').map(Number);
  return major < 2 || (major === 2 && minor < 38);
}

/** Section headers of a little-endian 64-bit ELF file. */
function readSections(elf) {
  if (elf.length < 64 || elf.readUInt32BE(0) !== 0x7f454c46 || elf[4] !== 2 || elf[5] !== 1) {
    fail('the binary is not a little-endian ELF64 file');
  }
  const table = Number(elf.readBigUInt64LE(40));
  const size = elf.readUInt16LE(58);
  const count = elf.readUInt16LE(60);
  if (size !== 64 || table + count * size > elf.length) fail('the section table is out of bounds');
  return Array.from({ length: count }, (_, i) => {
    const at = table + i * size;
    const section = {
      type: elf.readUInt32LE(at + 4),
      offset: Number(elf.readBigUInt64LE(at + 24)),
      size: Number(elf.readBigUInt64LE(at + 32)),
      link: elf.readUInt32LE(at + 40),
      info: elf.readUInt32LE(at + 44),
    };
    return section;
  });
}

function stringAt(elf, offset) {
  return elf.toString('latin1', offset, elf.indexOf(0, offset));
}

/** Entries of .gnu.version_r: name, index as used in .gnu.version, and where the flags are. */
function readNeededVersions(elf, needs, strings) {
  const versions = [];
  let need = needs.offset;
  for (let i = 0; i < needs.info; i++) {
    let entry = need + elf.readUInt32LE(need + 8);
    for (let j = elf.readUInt16LE(need + 2); j > 0; j--) {
      versions.push({
        file: stringAt(elf, strings.offset + elf.readUInt32LE(need + 4)),
        name: stringAt(elf, strings.offset + elf.readUInt32LE(entry + 8)),
        index: elf.readUInt16LE(entry + 6),
        flagsAt: entry + 4,
      });
      entry += elf.readUInt32LE(entry + 12);
    }
    need += elf.readUInt32LE(need + 12);
  }
  return versions;
}

/** Changes the file's bytes in place. Returns false when they were changed before. */
function patch(elf, oldestName) {
  const sections = readSections(elf);
  const symbols = sections.find((s) => s.type === SHT_DYNSYM);
  const versionOf = sections.find((s) => s.type === SHT_GNU_VERSYM);
  const needs = sections.find((s) => s.type === SHT_GNU_VERNEED);
  if (!symbols || !versionOf || !needs) fail('the binary lacks its dynamic symbol or version tables');
  const strings = sections[symbols.link];

  const versions = readNeededVersions(elf, needs, strings);
  const needed = versions.find((v) => v.name === NEEDED && v.file === 'libc.so.6');
  const oldest = versions.find((v) => v.name === oldestName && v.file === 'libc.so.6');
  const newer = versions.find(
    (v) => v.name.startsWith('GLIBC_2.') && v.name !== NEEDED && !olderThan238(v.name.slice(6)),
  );
  if (newer) fail(`the binary also needs ${newer.name}, which nobody has looked at`);
  if (!needed) fail(`the binary does not need ${NEEDED}; this step is out of date`);
  if (!oldest) fail(`the binary does not name ${oldestName}`);
  if (elf.readUInt16LE(needed.flagsAt) & VER_FLG_WEAK) return false;

  const missing = new Set(RENAMED);
  for (let i = 0; i < symbols.size / SYMBOL_BYTES; i++) {
    const versionAt = versionOf.offset + 2 * i;
    if (elf.readUInt16LE(versionAt) !== needed.index) continue;
    const nameAt = symbols.offset + SYMBOL_BYTES * i;
    const name = stringAt(elf, strings.offset + elf.readUInt32LE(nameAt));
    if (!missing.delete(name)) fail(`the binary needs ${name} of ${NEEDED}, which has no older equal`);
    elf.writeUInt32LE(elf.readUInt32LE(nameAt) + PREFIX_LENGTH, nameAt);
    elf.writeUInt16LE(oldest.index, versionAt);
  }
  if (missing.size > 0) fail(`the binary does not use ${[...missing].join(', ')}; this step is out of date`);
  elf.writeUInt16LE(elf.readUInt16LE(needed.flagsAt) | VER_FLG_WEAK, needed.flagsAt);
  return true;
}

const glibc = process.report.getReport().header.glibcVersionRuntime;
if (process.platform !== 'linux' || glibc === undefined) fail('engined needs Linux with glibc');
if (!olderThan238(glibc)) process.exit(0);

const oldest = OLDEST[process.arch];
if (oldest === undefined) fail(`uWebSockets.js has no binary for ${process.arch}`);
const directory = join(dirname(fileURLToPath(import.meta.url)), '..', 'node_modules', 'uWebSockets.js');
// There is one for each version of Node, and the daemon may be run by another one than npm.
const binaries = readdirSync(directory).filter((name) => /^uws_linux_[^_]+_\d+\.node$/.test(name));
const own = `uws_linux_${process.arch}_${process.versions.modules}.node`;
if (!binaries.includes(own)) fail(`uWebSockets.js has no binary for this version of Node: ${own} is missing`);

for (const name of binaries.filter((binary) => binary.startsWith(`uws_linux_${process.arch}_`))) {
  const file = join(directory, name);
  const elf = readFileSync(file);
  if (!patch(elf, oldest)) continue;
  copyFileSync(file, `${file}.orig`);
  // A new file under the old name: a running process keeps the one that it has mapped.
  writeFileSync(`${file}.new`, elf, { mode: 0o755 });
  renameSync(`${file}.new`, file);
  console.log(`patch-uws: ${file} now loads on glibc ${glibc}`);
}

/**
 * npm run docs [-- --output DIR]: makes pages of README.md and docs/*.md, in dist/docs unless told otherwise. They need
 * no server. A link to a page, heading or file that does not exist is an error. Plain Node.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Marked } from 'marked';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..');
/** In this order; whatever is in docs/ and not here comes behind it. */
const GUIDES = [
  'README',
  'docs/install',
  'docs/first-steps',
  'docs/coming-from-dockerd',
  'docs/upgrade',
  'docs/troubleshooting',
  'docs/hardening',
  'docs/differences',
  'docs/support',
];
const STYLE = `body{display:flex;margin:0;font:16px/1.5 sans-serif;color:#222}nav{flex:0 0 14em;padding:1em;
background:#f4f4f4;min-height:100vh}nav a{display:block}main{max-width:60em;padding:1em 2em;min-width:0}
pre{background:#f4f4f4;padding:.7em;overflow:auto}table{border-collapse:collapse;display:block;overflow:auto}
td,th{border:1px solid #ccc;padding:.3em .6em;text-align:left;vertical-align:top}a{color:#0550ae}`;

/** Returns the anchor that GitHub gives a heading. */
export function anchorOf(heading) {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{Letter}\p{Number}\s_-]/gu, '')
    .replaceAll(' ', '-');
}

/**
 * Renders a document. `link` is given the target of each link and returns the one of the page.
 * @returns the title, the anchors of its headings, and the text in HTML.
 */
export function render(markdown, link = (target) => target) {
  const anchors = [];
  let title = '';
  const marked = new Marked({
    renderer: {
      heading({ tokens, depth, text }) {
        const anchor = anchorOf(text.replaceAll('`', ''));
        anchors.push(anchor);
        if (depth === 1) title ||= text;
        return `<h${depth} id="${anchor}">${this.parser.parseInline(tokens)}</h${depth}>\n`;
      },
      link({ href, tokens }) {
        return `<a href="${link(href).replaceAll('"', '&quot;')}">${this.parser.parseInline(tokens)}</a>`;
      },
    },
  });
  const html = marked.parse(markdown);
  return { title, anchors, html };
}

/** Documents by their path without `.md`. */
function documents() {
  const names = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'));
  const paths = ['README', ...names.sort().map((name) => `docs/${name.slice(0, -3)}`)];
  const guides = GUIDES.filter((path) => paths.includes(path));
  return new Map(
    [...guides, ...paths.filter((path) => !guides.includes(path))].map((path) => [
      path,
      readFileSync(join(ROOT, `${path}.md`), 'utf8'),
    ]),
  );
}

/** The address of a document's page: all pages lie in one directory. */
const pageOf = (path) => (path === 'README' ? 'index.html' : `${path.slice('docs/'.length)}.html`);

/** Returns a text for each link that leads nowhere. `texts` has the documents by path, `exists` knows other files. */
export function brokenLinks(texts, exists) {
  const anchorsOf = new Map([...texts].map(([path, text]) => [path, render(text).anchors]));
  return [...texts].flatMap(([path, text]) => {
    const problems = [];
    render(text, (target) => {
      if (/^[a-z]+:/.test(target)) return target;
      const [file = '', anchor] = target.split('#');
      const full = file === '' ? `${path}.md` : normalize(join(dirname(path), file));
      const anchors = anchorsOf.get(full.replace(/\.md$/, ''));
      if (anchors === undefined ? !exists(full) : anchor !== undefined && !anchors.includes(anchor))
        problems.push(`${path}.md: there is no ${target}`);
      return target;
    });
    return problems;
  });
}

function pageLink(path, target) {
  const [file = '', anchor] = target.split('#');
  if (/^[a-z]+:/.test(target) || !file.endsWith('.md')) return target;
  const page = pageOf(normalize(join(dirname(path), file)).replace(/\.md$/, ''));
  return anchor === undefined ? page : `${page}#${anchor}`;
}

function writePages(output) {
  const texts = documents();
  const problems = brokenLinks(texts, (path) => existsSync(join(ROOT, path)));
  if (problems.length > 0) throw new Error(problems.join('\n'));
  const pages = [...texts].map(([path, text]) => ({ path, ...render(text, (target) => pageLink(path, target)) }));
  const menu = pages.map(({ path, title }) => `<a href="${pageOf(path)}">${title}</a>`).join('\n');
  mkdirSync(output, { recursive: true });
  cpSync(join(ROOT, 'docs', 'pictures'), join(output, 'pictures'), { recursive: true });
  for (const { path, title, html } of pages)
    writeFileSync(
      join(output, pageOf(path)),
      `<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>${title}</title>\n` +
        `<style>${STYLE}</style>\n</head>\n<body>\n<nav>\n${menu}\n</nav>\n<main>\n${html}</main>\n</body>\n</html>\n`,
    );
  console.log(`${pages.length} pages in ${output}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { output: { type: 'string', default: join(ROOT, 'dist', 'docs') } } });
  try {
    writePages(values.output);
  } catch (error) {
    console.error(`npm run docs: ${error.message}`);
    process.exitCode = 1;
  }
}

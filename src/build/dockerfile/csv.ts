/** One line of CSV, as flags have it: fields between commas, some of them in double quotes. */
import { DockerfileError } from './dockerfile-error.js';

/** @param failure stands before the message. @throws DockerfileError without lines. */
export function csvFields(line: string, failure: string): string[] {
  const problem = (at: number, what: string): Error =>
    new DockerfileError(`${failure}: parse error on line 1, column ${at + 1}: ${what}`);
  if (line === '') throw new DockerfileError(`${failure}: EOF`);
  const fields: string[] = [];
  for (let at = 0; ; at++) {
    if (line[at] !== '"') {
      const comma = line.indexOf(',', at);
      const end = comma < 0 ? line.length : comma;
      const field = line.slice(at, end);
      if (field.includes('"')) throw problem(at + field.indexOf('"'), 'bare " in non-quoted-field');
      fields.push(field);
      at = end;
    } else {
      let field = '';
      for (at++; ; at += 2) {
        const quote = line.indexOf('"', at);
        if (quote < 0) throw problem(at, 'extraneous or missing " in quoted-field');
        field += line.slice(at, quote);
        at = quote;
        if (line[at + 1] !== '"') break;
        field += '"';
      }
      fields.push(field);
      at++;
      if (at < line.length && line[at] !== ',') throw problem(at - 1, 'extraneous or missing " in quoted-field');
    }
    if (at >= line.length) return fields;
  }
}

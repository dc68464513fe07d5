/** Versions are compared line by line: a new line does not make an old one safe. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseVersion, VULNERABILITIES, vulnerabilitiesOf } from './known-vulnerabilities.js';

const listed = [{ id: 'a', mendedIn: ['1.6.38', '1.7.27', '2.0.4'] }];

test('a version has what its line, or every line after it, was mended of', () => {
  const has = (text: string): boolean => {
    const version = parseVersion(text);
    assert.ok(version);
    return vulnerabilitiesOf(version, listed).length > 0;
  };
  for (const text of ['1.5.99', '1.6.37', '1.6.9', '1.7.26', 'v2.0.3', '2.0', '1.6.20~ds1', '1.8.0'])
    assert.ok(has(text), text);
  for (const text of ['1.6.38', '1.6.100', '1.7.27+ds', '2.0.4', '2.1.0', '3.0', '10.0.0']) assert.ok(!has(text), text);
});

test('a text without numbers is no version', () => {
  for (const text of ['', 'unknown', '1', 'x1.2.3', '.1.2']) assert.equal(parseVersion(text), undefined);
});

test('the mended versions of the list are versions, in ascending order', () => {
  for (const { id, mendedIn } of Object.values(VULNERABILITIES).flat()) {
    const versions = mendedIn.map((text) => parseVersion(text));
    assert.ok(
      versions.every((version) => version !== undefined),
      id,
    );
    const order = versions.map((version) => (version ?? []).map((part) => String(part).padStart(6, '0')).join('.'));
    assert.deepEqual(order, [...order].sort(), id);
  }
});

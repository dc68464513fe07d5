/** Parses JSON that registries and archives of images have made. */
import { invalid } from '../errors/engine-error.js';
import { JsonScan, type JsonLimits } from './json-scan.js';

/**
 * No real document has nearly so much in it. Sixteen mebibytes of empty objects would hold up all other work for two
 * seconds, and take 400 MB.
 */
const LIMITS: JsonLimits = { bytes: 16 * 1024 * 1024, depth: 64, values: 200_000, members: 100_000 };

/** @throws EngineError invalid, which says what is wrong, for a document beyond the limits and for what is no JSON. */
export function parseForeignJson(bytes: Buffer, limits: JsonLimits = LIMITS): unknown {
  if (bytes.length > limits.bytes) throw invalid(`larger than ${limits.bytes} bytes`);
  new JsonScan(limits).take(bytes);
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw invalid('not JSON', { cause: error });
  }
}

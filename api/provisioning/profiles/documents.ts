/**
 * Parses documents of profiles without blocking the event loop. Crafted YAML and TOML can take seconds to parse, so
 * longer texts are parsed in a process, which is ended when it exceeds its time or memory. Only texts are
 * exchanged, because copying a value costs as much as parsing it.
 */
import { ServiceError } from '#core/errors/index.ts'
import { parseExactBody } from '#http/index.ts'
import { entryPoint } from '#core/installation.ts'
import { createJobQueue, jobProcess } from '#core/jobs/index.ts'
import type { DocumentJob } from './document-process.ts'
import { MAX_CONVERTED_CHARS, convertDocument } from './notations.ts'
import type { Converted, Notation } from './notations.ts'

export type { Notation } from './notations.ts'

/** Shorter texts are parsed directly, in milliseconds at most. */
const MAX_DIRECT_CHARS = 2048
/** Longer texts are rejected before they are parsed. */
const MAX_TEXT_CHARS = 1024 * 1024

const MAX_HEAP_MIB = 256

const parser = createJobQueue<DocumentJob, Converted>(
  { what: 'document', maxJobMs: 2000, maxWaitingOfOwner: 8, maxWaiting: 64 },
  jobProcess(entryPoint('api/provisioning/profiles/document-process.ts'), MAX_HEAP_MIB),
)

/**
 * Throws `malformed` for a text that is not valid, `too_large` for one that takes too long, `rate_limited` when too
 * many wait. `owner` is the domain of the request.
 */
export async function checkDocument(notation: Notation, text: string, owner: string): Promise<void> {
  await convert({ wanted: 'check', notation, text }, owner)
}

/** Returns the value of the text, checked like a JSON body. Throws the same errors as `checkDocument`. */
export async function readDocument(notation: Notation, text: string, owner: string): Promise<unknown> {
  return parseExactBody(Buffer.from(await convert({ wanted: 'json', notation, text }, owner)))
}

/**
 * Returns the text serialized again. Throws the same errors as `checkDocument`, and `unprocessable` for values that the
 * notation cannot represent.
 */
export async function rewriteDocument(notation: Notation, text: string, owner: string): Promise<string> {
  return await convert({ wanted: 'rewrite', notation, text }, owner)
}

async function convert(job: DocumentJob, owner: string): Promise<string> {
  const { wanted, notation, text } = job
  if (text.length > MAX_TEXT_CHARS)
    throw new ServiceError('too_large', `the document is limited to ${MAX_TEXT_CHARS} characters`)
  const isShort = text.length <= MAX_DIRECT_CHARS
  return textOf(isShort ? await convertDocument(wanted, notation, text) : await parser.run(job, owner), notation)
}

function textOf(converted: Converted, notation: Notation): string {
  if ('text' in converted) return converted.text
  const name = notation.toUpperCase()
  switch (converted.fault) {
    case 'unreadable':
      throw new ServiceError('malformed', `the body is not valid ${name}`)
    case 'unwritable':
      throw new ServiceError('unprocessable', `the document cannot be written as ${name}`)
    case 'too_long':
      throw new ServiceError('too_large', `the document is limited to ${MAX_CONVERTED_CHARS} characters`)
  }
}

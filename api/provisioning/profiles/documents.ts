/**
 * Documents of profiles, read where they cannot hold up anybody. The readers of YAML and TOML take seconds for texts that were made to take them,
 * so that a text of any length goes to a thread that is ended when it takes too long or too much memory. Texts go there and come back, because a
 * copied value would cost this thread as much as reading it.
 */
import { ServiceError } from '#core/errors/index.ts'
import { parseJsonBody } from '#core/http/index.ts'
import { entryPoint } from '#core/installation.ts'
import { createJobThread } from '#core/job-thread.ts'
import type { DocumentJob } from './document-thread.ts'
import { MAX_CONVERTED_CHARS, convertDocument } from './notations.ts'
import type { Converted, Notation } from './notations.ts'

export type { Notation } from './notations.ts'

/** A text below this takes milliseconds, whatever it says. */
const MAX_DIRECT_CHARS = 2048
/** A text above is refused before it is read. */
const MAX_TEXT_CHARS = 1024 * 1024

const thread = createJobThread<DocumentJob, Converted>({
  script: entryPoint('api/provisioning/profiles/document-thread.ts'),
  what: 'document',
  maxJobMs: 2000,
  maxHeapMib: 256,
  maxWaitingOfOwner: 8,
  maxWaiting: 64,
})

/** Throws `malformed` for a text that cannot be read, `too_large` for one that takes too long, `rate_limited` when too many wait. `owner` is the domain that it is read for. */
export async function checkDocument(notation: Notation, text: string, owner: string): Promise<void> {
  await convert({ wanted: 'check', notation, text }, owner)
}

/** What the text holds, as JSON would have brought it: fit to be stored. Throws as `checkDocument` does. */
export async function readDocument(notation: Notation, text: string, owner: string): Promise<unknown> {
  return parseJsonBody(Buffer.from(await convert({ wanted: 'json', notation, text }, owner)))
}

/** The text written anew. Throws as `checkDocument` does, and `unprocessable` for what the notation cannot say. */
export async function rewriteDocument(notation: Notation, text: string, owner: string): Promise<string> {
  return await convert({ wanted: 'rewrite', notation, text }, owner)
}

async function convert(job: DocumentJob, owner: string): Promise<string> {
  const { wanted, notation, text } = job
  if (text.length > MAX_TEXT_CHARS)
    throw new ServiceError('too_large', `the document must have at most ${MAX_TEXT_CHARS} characters`)
  const isShort = text.length <= MAX_DIRECT_CHARS
  return textOf(isShort ? await convertDocument(wanted, notation, text) : await thread.run(job, owner), notation)
}

function textOf(converted: Converted, notation: Notation): string {
  if ('text' in converted) return converted.text
  const name = notation.toUpperCase()
  switch (converted.fault) {
    case 'unreadable':
      throw new ServiceError('malformed', `the body is no ${name}`)
    case 'unwritable':
      throw new ServiceError('unprocessable', `the document cannot be written as ${name}`)
    case 'too_long':
      throw new ServiceError('too_large', `the document must hold at most ${MAX_CONVERTED_CHARS} characters`)
  }
}

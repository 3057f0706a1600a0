/** Writes a response into a file, as a stream. */
import { createWriteStream } from 'node:fs'
import { rename, rm } from 'node:fs/promises'
import { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { IncomingMessage } from 'node:http'
import type { ApiRequest, Cli } from './command.ts'
import { CommandError, InterruptedError } from './failures.ts'
import { startRequest } from './http.ts'
import { createProgress, formatBytes } from './progress.ts'

/** The server can search for a while before the next byte. */
const SILENCE_DEADLINE_MS = 120_000

/** The response to a GET. Throws CommandError with the server's reason. */
export async function openResponse(cli: Cli, request: ApiRequest, accept: string): Promise<IncomingMessage> {
  const { url, headers } = await cli.prepare(request)
  const response = await startRequest({
    method: 'GET',
    url,
    headers: { ...headers, Accept: accept },
    body: undefined,
    deadlineMs: SILENCE_DEADLINE_MS,
    isInsecure: cli.settings.isInsecure,
    signal: cli.signal,
  })
  if ((response.statusCode ?? 0) < 400) return response
  response.destroy()
  // This request reads the error answer and throws with a hint.
  await cli.request({ ...request, headers: { Accept: accept } })
  throw new CommandError(`the server returned ${response.statusCode}`)
}

export type Saving = {
  accept: string
  file: string
  /** The name of the work, for the progress. */
  doing: string
}

/** Writes to a temporary file and renames it at the end, so that a file is always complete. */
export async function saveResponse(cli: Cli, request: ApiRequest, { accept, file, doing }: Saving): Promise<void> {
  const response = await openResponse(cli, request, accept)
  // The draft is named after this process, because another one can write the same file.
  const part = `${file}.${process.pid}.part`
  const progress = createProgress(cli.output, doing)
  let bytes = 0
  const count = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length
      progress.say(formatBytes(bytes))
      done(undefined, chunk)
    },
  })
  try {
    await pipeline(response, count, createWriteStream(part))
    await rename(part, file)
  } catch (error) {
    await rm(part, { force: true })
    if (cli.signal.aborted) throw new InterruptedError(`interrupted; ${file} was not written`)
    throw new CommandError(`${doing} failed: ${(error as Error).message}`, 'nothing was written; try again')
  } finally {
    progress.end()
  }
  cli.output.ok()
}

/** `skein messages export`: everything that matches, into a file, however much it is. */
import { createWriteStream } from 'node:fs'
import { rename, rm } from 'node:fs/promises'
import { extname } from 'node:path'
import { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { ApiRequest, Cli } from '../shared/command.ts'
import { CommandError, InterruptedError } from '../shared/failures.ts'
import { open } from '../shared/http.ts'
import { createProgress, formatBytes } from '../shared/progress.ts'

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  '.csv': 'text/csv',
  '.jsonl': 'application/x-ndjson',
  '.ndjson': 'application/x-ndjson',
}
/** The server may look for a while before the next row. */
const SILENCE_DEADLINE_MS = 120_000

/** Writes beside the file and renames at the end: what stands under the name is whole. `-` is standard output. */
export async function exportMessages(cli: Cli, request: ApiRequest, file: string): Promise<void> {
  const accept = file === '-' ? 'application/x-ndjson' : MEDIA_TYPES[extname(file).toLowerCase()]
  if (accept === undefined)
    throw new CommandError(`${file} must end in ${Object.keys(MEDIA_TYPES).join(', ')}, or be -`)
  const { url, headers } = await cli.prepare(request)
  const response = await open({
    method: 'GET',
    url,
    headers: { ...headers, Accept: accept },
    body: undefined,
    deadlineMs: SILENCE_DEADLINE_MS,
    isInsecure: cli.settings.isInsecure,
    signal: cli.signal,
  })
  if ((response.statusCode ?? 0) >= 400) {
    response.destroy()
    // The ordinary way reads the refusal and says what to do.
    await cli.request({ ...request, headers: { Accept: accept } })
    throw new CommandError(`the server answered ${response.statusCode}`)
  }
  if (file === '-') {
    response.setEncoding('utf8')
    for await (const chunk of response as AsyncIterable<string>) await cli.output.text(chunk)
    return
  }
  // Of this process alone: another one may be writing the same file.
  const part = `${file}.${process.pid}.part`
  const progress = createProgress(cli.output, 'exporting')
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
    throw new CommandError(`the export broke off: ${(error as Error).message}`, 'nothing was written; try again')
  } finally {
    progress.end()
  }
  cli.output.ok()
}

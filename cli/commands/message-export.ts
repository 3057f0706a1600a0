/** `skein messages export`: writes all matching messages into a file, as a stream. */
import { extname } from 'node:path'
import type { ApiRequest, Cli } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { openResponse, saveResponse } from '../shared/save-response.ts'

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  '.csv': 'text/csv',
  '.jsonl': 'application/x-ndjson',
  '.ndjson': 'application/x-ndjson',
}

/** `-` is standard output. */
export async function exportMessages(cli: Cli, request: ApiRequest, file: string): Promise<void> {
  const accept = file === '-' ? 'application/x-ndjson' : MEDIA_TYPES[extname(file).toLowerCase()]
  if (accept === undefined)
    throw new CommandError(`${file} must end in ${Object.keys(MEDIA_TYPES).join(', ')}, or be -`)
  if (file !== '-') return await saveResponse(cli, request, { accept, file, doing: 'exporting' })
  const response = await openResponse(cli, request, accept)
  response.setEncoding('utf8')
  for await (const chunk of response as AsyncIterable<string>) await cli.output.text(chunk)
}

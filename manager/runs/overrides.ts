import { parseBase64 } from '#core/bytes/index.ts'
import type { TextOrBytes } from '#core/bytes/index.ts'
import { refusedField } from '#core/errors/index.ts'
import type { RunOverrides } from '../model/start.ts'
import type { RunBody } from './schema.ts'

/** The overrides of a body for its runs. */
export function overridesOf(body: RunBody | null | undefined): RunOverrides {
  return {
    ...(body?.inputs === undefined ? {} : { inputs: body.inputs }),
    ...(body?.cli_args === undefined ? {} : { cliArgs: body.cli_args }),
    ...(body?.env === undefined ? {} : { env: body.env }),
    ...(body?.stdin === undefined ? {} : { stdin: stdinOf(body.stdin) }),
    ...(body?.bytes === undefined ? {} : { bytes: body.bytes }),
  }
}

function stdinOf(stdin: TextOrBytes): TextOrBytes {
  if (typeof stdin !== 'string' && parseBase64(stdin.base64) === undefined)
    throw refusedField('/stdin/base64', 'must be base64 (RFC 4648 section 4)')
  return stdin
}

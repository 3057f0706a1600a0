import type { RunOverrides } from '../model/start.ts'
import type { RunBody } from './schema.ts'

/** What a body changes for its runs alone. */
export function overridesOf(body: RunBody | null | undefined): RunOverrides {
  return {
    ...(body?.inputs === undefined ? {} : { inputs: body.inputs }),
    ...(body?.cli_args === undefined ? {} : { cliArgs: body.cli_args }),
    ...(body?.env === undefined ? {} : { env: body.env }),
  }
}

/** Flags of one run of a task. */
import { inputsOf, pairs } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

export const RUN_FLAGS = ['inputs', 'cli-args', 'env', 'stdin', 'bytes'] as const

export function runFields({ flags }: Given): Record<string, unknown> {
  const inputs = flags.get('inputs')
  const cliArgs = flags.get('cli-args')
  const env = flags.all('env')
  const stdin = flags.get('stdin')
  const bytes = flags.get('bytes')
  return {
    ...(inputs === undefined ? {} : { inputs: inputsOf(inputs, '--inputs') }),
    ...(cliArgs === undefined ? {} : { cli_args: cliArgs.split(',') }),
    ...(env.length === 0 ? {} : { env: pairs(env, '--env') }),
    ...(stdin === undefined ? {} : { stdin }),
    ...(bytes === undefined ? {} : { bytes }),
  }
}

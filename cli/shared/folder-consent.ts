/**
 * The `config.toml` of the current folder can come from an archive or a repository of another person. Its filters and
 * output settings apply; its addresses, TLS verification and tokens are used only after the user has agreed, once for
 * each folder and these values (contract decision 77).
 */
import { createHash } from 'node:crypto'
import { contextsPathOf, ownConfigPath, readConfigFile, restrictedBy, sensitiveValues } from './config-file.ts'
import type { ConfigFile } from './config-file.ts'
import { CommandError } from './failures.ts'
import type { Invocation } from './invocation.ts'
import { changeContexts, readContexts } from './login-store.ts'
import { oneLine } from './plain-text.ts'
import { ask } from './prompt.ts'

/** Folders with a saved consent; the oldest is dropped beyond. */
const MAX_FOLDERS = 1000
/** Characters of a value that the question shows. */
const MAX_SHOWN_CHARS = 200

/**
 * The configuration file in effect. Asks for consent to the file of the current folder where needed, unless the command
 * sends no request. Throws CommandError where it cannot ask.
 */
export async function readAgreedConfig(invocation: Invocation, needsServer: boolean): Promise<ConfigFile> {
  const { flags, environment, signal, streams } = invocation
  const file = readConfigFile(flags.get('config') ?? environment['SKEIN_CONFIG'], environment)
  const values = file.isOfFolder ? sensitiveValues(file) : []
  if (!file.isOfFolder) return file
  const restricted = () => restrictedBy(file, readConfigFile(ownConfigPath(environment), environment))
  if (values.length === 0 || !needsServer) return restricted()
  const contextsPath = contextsPathOf(environment)
  const digest = createHash('sha256').update(JSON.stringify(values)).digest('hex')
  const kept = readContexts(contextsPath).folders?.[file.path]
  if (kept?.digest === digest) return kept.isAgreed ? file : restricted()
  if (!process.stdin.isTTY || streams.stderr.isTTY !== true)
    throw new CommandError(
      `${file.path} sets ${values.map(([key]) => key).join(', ')}, which needs your consent: run skein in a terminal, or name the file with --config ./config.toml`,
    )
  const answer = await ask(questionOf(file.path, values), { isSecret: false }, signal)
  const isAgreed = /^y(es)?$/i.test(answer.trim())
  await changeContexts(contextsPath, (all) => {
    const others = Object.entries(all.folders ?? {}).filter(([path]) => path !== file.path)
    all.folders = Object.fromEntries([...others.slice(1 - MAX_FOLDERS), [file.path, { digest, isAgreed }]])
  })
  return isAgreed ? file : restricted()
}

function questionOf(path: string, values: readonly (readonly [string, string])[]): string {
  const lines = values.map(([key, value]) => {
    const shown = key === 'user_token' ? '(a token)' : oneLine(value).slice(0, MAX_SHOWN_CHARS)
    return `  ${key} = ${shown}\n`
  })
  return `${oneLine(path)} sets\n${lines.join('')}Use this for commands in this folder? [y/N]: `
}

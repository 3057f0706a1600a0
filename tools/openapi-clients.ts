/**
 * `npm run openapi:client -- <language> [<folder>]` generates the client of a language from openapi.json with
 * openapi-generator and compiles it, to verify that the document works for the language. `OPENAPI_TOOLS` names the folder
 * of the generator, which test/openapi/install.sh installs; the compiler must be installed.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const ROOT = join(import.meta.dirname, '..')
const DOCUMENT = join(ROOT, 'openapi.json')
/** Deadline of one command. */
const DEADLINE_MS = 15 * 60_000
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024

type Command = readonly [program: string, ...args: string[]]
type ClientMaker = {
  generator: string
  options: readonly string[]
  /** The commands that compile the client in its folder; `python` is that of the virtual environment. */
  compile: readonly Command[]
}

const PYTHON_PACKAGE = 'skein_client'
const SOURCES_ALONE = 'apiTests=false,modelTests=false,apiDocs=false,modelDocs=false'

export const CLIENTS = {
  python: {
    generator: 'python',
    options: ['--package-name', PYTHON_PACKAGE],
    // An import compiles and runs every module.
    compile: [['python', '-c', `import ${PYTHON_PACKAGE}`]],
  },
  go: {
    generator: 'go',
    options: [
      '--package-name',
      'client',
      '--git-host',
      'skein.test',
      '--git-user-id',
      'api',
      '--git-repo-id',
      'client',
    ],
    compile: [
      ['go', 'mod', 'tidy'],
      ['go', 'build', './...'],
    ],
  },
  java: {
    generator: 'java',
    // The default library, okhttp-gson: `native` of this version cannot write a union of a type and a list of it.
    options: ['--api-package', 'skein.api', '--model-package', 'skein.model'],
    compile: [['mvn', '-q', '-B', '-DskipTests', 'compile']],
  },
  rust: {
    generator: 'rust',
    options: ['--package-name', 'skein_client'],
    compile: [['cargo', 'build', '--quiet']],
  },
} as const satisfies Record<string, ClientMaker>
export type ClientLanguage = keyof typeof CLIENTS

/** The folder with the generators; undefined if not set. */
export const openapiTools = (): string | undefined => process.env['OPENAPI_TOOLS']

/** A program of the virtual environment. */
export function toolOf(name: string): string {
  const tools = openapiTools()
  if (tools === undefined) {
    throw new Error('OPENAPI_TOOLS must name the folder of the generators: run test/openapi/install.sh <folder> first')
  }
  return join(tools, 'bin', name)
}

/** Runs a command and returns its output. Throws with its output if it fails. */
export async function runCommand([program, ...args]: Command, cwd: string): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)(program, args, {
      cwd,
      timeout: DEADLINE_MS,
      maxBuffer: MAX_OUTPUT_BYTES,
    })
    return stdout
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string }
    throw new Error(`${program} ${args.join(' ')} failed:\n${stdout}\n${stderr}`, { cause: error })
  }
}

/** Generates the client in the folder. */
export async function generateClient(language: ClientLanguage, folder: string): Promise<void> {
  const { generator, options } = CLIENTS[language]
  const args = [
    'generate',
    '-i',
    DOCUMENT,
    '-g',
    generator,
    '-o',
    folder,
    '--global-property',
    SOURCES_ALONE,
    ...options,
  ]
  await runCommand([toolOf('openapi-generator-cli'), ...args], ROOT)
}

export async function compileClient(language: ClientLanguage, folder: string): Promise<void> {
  for (const [program, ...args] of CLIENTS[language].compile)
    await runCommand([program === 'python' ? toolOf('python') : program, ...args], folder)
}

if (import.meta.main) {
  const [language = '', given] = process.argv.slice(2)
  if (!Object.hasOwn(CLIENTS, language)) {
    console.error(`usage: openapi:client <${Object.keys(CLIENTS).join('|')}> [<folder>]`)
    process.exit(2)
  }
  const folder = given ?? mkdtempSync(join(tmpdir(), 'skein-client-'))
  try {
    await generateClient(language as ClientLanguage, folder)
    await compileClient(language as ClientLanguage, folder)
    console.log(`the ${language} client compiles${given === undefined ? '' : `: ${folder}`}`)
  } finally {
    if (given === undefined) rmSync(folder, { recursive: true, force: true })
  }
}

/** The build of the console: static files for any prefix, with compressed forms. It needs no network. */
import { readFileSync, readdirSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'
import { defineConfig } from 'vite'
import type { Plugin } from 'vite'

const COMPRESSED = /\.(js|css|svg|wasm)$/
const BROTLI_QUALITY = 9
/** The quality of what every visitor loads first: 6 % smaller, in six times the time. */
const FIRST_BROTLI_QUALITY = 10

/** Writes `name.br` and `name.gz` beside each file: browsers accept Brotli over TLS and from this machine alone. */
function compressFiles(): Plugin {
  let folder = ''
  return {
    name: 'compress-files',
    apply: 'build',
    configResolved: (config) => {
      folder = config.build.outDir
    },
    // This is not `closeBundle`, which runs after a failed build too and would hide its error.
    writeBundle: async () => {
      const page = readFileSync(join(folder, 'index.html'), 'utf8')
      const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => COMPRESSED.test(name))
      await Promise.all(
        names.map(async (name) => {
          const path = join(folder, name)
          const content = await readFile(path)
          const quality = page.includes(name) ? FIRST_BROTLI_QUALITY : BROTLI_QUALITY
          const params = { [constants.BROTLI_PARAM_QUALITY]: quality }
          await writeFile(`${path}.br`, await promisify(brotliCompress)(content, { params }))
          await writeFile(`${path}.gz`, await promisify(gzip)(content, { level: 9 }))
        }),
      )
    },
  }
}

const TRANSPILER = 'js-component-bindgen-component'

/** The transpiler of components loads its modules over the network; in the frame of a trial, the page gives them to it. */
function transpilerWithoutFiles(): Plugin {
  return {
    name: 'transpiler-without-files',
    transform: (code, id) => {
      if (!id.endsWith(`/${TRANSPILER}.js`)) return
      const loading = new RegExp(
        `fetchCompile\\(new URL\\('\\./${TRANSPILER}\\.(core2?\\.wasm)', import\\.meta\\.url\\)\\)`,
        'g',
      )
      const found = code.match(loading)?.length ?? 0
      if (found !== 2) throw new Error(`the transpiler loads ${found} files, and not 2: see console/try/sandbox.ts`)
      return { code: code.replaceAll(loading, "globalThis.transpilerCore('$1')"), map: null }
    },
  }
}

/** The chunk of `early.ts` and of what it needs. */
const EARLY = 'early'

/** Lets the document run the early chunk as soon as it is there. The main script, which imports it too, waits for all of its chunks. */
function earlyScript(): Plugin {
  return {
    name: 'early-script',
    apply: 'build',
    transformIndexHtml: {
      order: 'post',
      handler: (html, { bundle, filename }) => {
        if (!filename.endsWith('index.html')) return html
        const chunks = Object.values(bundle ?? {}).filter((file) => file.type === 'chunk')
        const early = chunks.find(({ name }) => name === EARLY)
        const place = html.indexOf('<script')
        if (early === undefined || place < 0) throw new Error('the document does not get its early script')
        const script = `<script type="module" async crossorigin src="./${early.fileName}"></script>\n    `
        return `${html.slice(0, place)}${script}${html.slice(place)}`
      },
    },
  }
}

/** What so many screens share is one chunk for all of them. */
const MIN_SCREENS = 6

type Modules = { getModuleInfo(id: string): { readonly importedIds: readonly string[] } | null }

/** What a module needs before it runs. */
function closureOf(id: string, modules: Modules): Set<string> {
  const found = new Set<string>([id])
  for (const one of found) for (const next of modules.getModuleInfo(one)?.importedIds ?? []) found.add(next)
  return found
}

/**
 * The chunk of a module. What every screen needs is three files: on a slow line, each further one costs a round trip once the connections of
 * a browser are taken. The other chunks follow from the screens.
 */
function chunkOfFrame(): (id: string, modules: Modules) => string | null {
  const [main, early] = ['main.tsx', 'early.ts'].map((name) => join(import.meta.dirname, name)) as [string, string]
  let closures: { main: Set<string>; early: Set<string> } | undefined
  return (id, modules) => {
    closures ??= { main: closureOf(main, modules), early: closureOf(early, modules) }
    if (closures.early.has(id)) return EARLY
    if (id === main || !closures.main.has(id)) return null
    return id.includes('/node_modules/') ? 'libraries' : 'frame'
  }
}

export default defineConfig({
  root: import.meta.dirname,
  // Relative to the document's base, which the server writes.
  base: './',
  html: { cspNonce: '__NONCE__' },
  cacheDir: join(import.meta.dirname, '..', 'node_modules', '.cache', 'vite'),
  plugins: [earlyScript(), compressFiles()],
  worker: { plugins: () => [transpilerWithoutFiles()] },
  build: {
    rolldownOptions: {
      input: ['index.html', 'try.html'].map((name) => join(import.meta.dirname, name)),
      output: {
        codeSplitting: {
          includeDependenciesRecursively: false,
          groups: [
            { name: chunkOfFrame(), test: /\.[jt]sx?$|preload-helper/ },
            // Small files of many screens.
            { name: 'parts', test: /\/console\/(api|shell)\/(?!table)[^/]+\.tsx?$/, minShareCount: MIN_SCREENS },
          ],
        },
      },
    },
    target: ['chrome140', 'firefox133', 'safari18.2'],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2_000,
  },
})

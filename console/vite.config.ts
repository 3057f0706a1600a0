/** The build of the console: static files for any prefix, with compressed forms. It needs no network. */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import { defineConfig } from 'vite'
import type { Plugin } from 'vite'

const COMPRESSED = /\.(js|css|svg|wasm)$/
const BROTLI_QUALITY = 9

/** Writes `name.br` and `name.gz` beside each file: browsers accept Brotli over TLS and from this machine alone. */
function compressFiles(): Plugin {
  let folder = ''
  return {
    name: 'compress-files',
    apply: 'build',
    configResolved: (config) => {
      folder = config.build.outDir
    },
    closeBundle: () => {
      for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
        if (!COMPRESSED.test(name)) continue
        const path = join(folder, name)
        const content = readFileSync(path)
        const params = { [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY }
        writeFileSync(`${path}.br`, brotliCompressSync(content, { params }))
        writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }))
      }
    },
  }
}

export default defineConfig({
  root: import.meta.dirname,
  // Relative to the document's base, which the server writes.
  base: './',
  html: { cspNonce: '__NONCE__' },
  cacheDir: join(import.meta.dirname, '..', 'node_modules', '.cache', 'vite'),
  plugins: [compressFiles()],
  build: {
    rolldownOptions: { input: ['index.html', 'try.html'].map((name) => join(import.meta.dirname, name)) },
    target: ['chrome111', 'firefox121', 'safari16.4'],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2_000,
  },
})

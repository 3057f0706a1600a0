/** Names of the files that a component becomes; its core modules are `component.core.wasm`, `component.core2.wasm` and so on. */

export const COMPONENT_SCRIPT = 'component.js'
/** Names all files of a component; written last, so that a folder with it is whole. */
export const COMPONENT_MANIFEST = 'files.json'

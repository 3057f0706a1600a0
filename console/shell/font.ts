/**
 * The typeface of the console. On the first visit it comes after the first picture, which has that of the system: its file is as large as all
 * data of a chart, and on a slow line the data would wait for it. Browsers keep the file, so that later visits begin with it.
 */
import { queryClient } from '../api/queries.ts'

const KEY = 'skein-font'
const FAMILY = "'Inter Variable'"
/** The first picture is complete when the console is shown, and has asked for nothing for so many looks. */
const LOOK_MS = 400
const QUIET_LOOKS = 4

const use = () => (document.documentElement.dataset['font'] = 'own')

async function loadFont(): Promise<void> {
  // A letter of another script has a file of its own, which is loaded when one is shown.
  const faces = await document.fonts.load(`1em ${FAMILY}`, 'Skein')
  if (faces.length === 0) return
  localStorage.setItem(KEY, 'kept')
  use()
}

function loadLater(quietLooks: number): void {
  if (quietLooks === QUIET_LOOKS) return void loadFont().catch(() => undefined)
  setTimeout(() => {
    const isShown = document.querySelector('.boot') === null && !document.hidden
    loadLater(isShown && queryClient.isFetching() === 0 ? quietLooks + 1 : 0)
  }, LOOK_MS)
}

if (localStorage.getItem(KEY) === null) loadLater(0)
else use()

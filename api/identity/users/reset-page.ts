/**
 * The page of the link in a reset mail: one form, without the console, which would load other resources. The
 * token stays in the URL of the page and is sent to PUT /password/reset as a bearer token.
 */
import { createHash } from 'node:crypto'

const STYLE = `body{font:16px/1.5 system-ui,sans-serif;max-width:24rem;margin:4rem auto;padding:0 1rem}
label,input,button{display:block;width:100%;box-sizing:border-box}input,button{margin:.25rem 0 1rem;padding:.5rem;font:inherit}`

const SCRIPT = `const form=document.querySelector('form'),note=document.querySelector('output')
form.addEventListener('submit',async event=>{
event.preventDefault()
const token=new URLSearchParams(location.search).get('token')??''
const [password,confirm_password]=['password','again'].map(name=>form.elements[name].value)
try{
const answer=await fetch(location.pathname,{method:'PUT',headers:{'Content-Type':'application/json',Authorization:'Bearer '+token},body:JSON.stringify({password,confirm_password})})
if(answer.ok){form.hidden=true;note.textContent='The new password is set. All sessions have ended: log in again.'}
else note.textContent=(await answer.json()).message
}catch{note.textContent='The server did not respond. Try again.'}
})`

const sourceOf = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`

export const RESET_PAGE_POLICY = `default-src 'none'; connect-src 'self'; style-src ${sourceOf(STYLE)}; script-src ${sourceOf(SCRIPT)}; form-action 'none'; frame-ancestors 'none'; base-uri 'none'`

export const RESET_PAGE = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Reset your password</title><style>${STYLE}</style></head>
<body>
<h1>Reset your password</h1>
<form>
<label for="password">New password</label><input id="password" name="password" type="password" autocomplete="new-password" required>
<label for="again">Repeat the new password</label><input id="again" name="again" type="password" autocomplete="new-password" required>
<button>Set the password</button>
</form>
<output role="status"></output>
<script>${SCRIPT}</script>
</body>
</html>
`

// Shows what has changed, every two seconds, unless somebody is typing. Without scripts the page reloads itself.
const refresh = async () => {
  try {
    const answer = await fetch(location.href)
    const next = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('main')
    const typing = document.activeElement instanceof HTMLInputElement
    if (answer.ok && next && !typing) document.querySelector('main').replaceWith(next)
  } catch {
    // the service does not answer now; the next one may
  }
}
setInterval(refresh, 2000)

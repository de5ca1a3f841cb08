# The files of the page, in their order in the document.
set(page_styles base.css chat.css panels.css)
set(page_scripts dom.js storage.js tree.js highlight.js math_symbols.js math.js markdown.js picture.js
    settings.js client.js answers.js chat.js view.js list.js compose.js app.js)
